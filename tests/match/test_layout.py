"""Layouts through reshapes: heads split, merged, grouped, and what cannot be proven."""

from __future__ import annotations

import pytest

from qkexport.match.layout import (
    BATCH,
    CHANNEL,
    HEAD,
    ROW,
    Factor,
    Layout,
    are_whole,
    axis,
    extent,
    joined,
    regroup,
)
from qkexport.match.sizes import ONE, Size

_B, _S, _H, _D = Size(1, ("b",)), Size(1, ("s",)), Size(6), Size(8)
_SPLIT: Layout = (axis(BATCH, _B), axis(ROW, _S), axis(HEAD, _H), axis(CHANNEL, _D))
_MERGED: Layout = (axis(BATCH, _B), axis(ROW, _S), (*axis(HEAD, _H), *axis(CHANNEL, _D)))


def test_heads_merge_and_split() -> None:
    assert regroup(_SPLIT, (_B, _S, Size(48))) == _MERGED
    assert regroup(_MERGED, (_B, _S, _H, _D)) == _SPLIT


def test_tokens_merge_with_the_batch() -> None:
    layout = regroup(_SPLIT, (_B * _S, _H, _D))
    assert layout is not None
    assert layout[0] == (*axis(BATCH, _B), *axis(ROW, _S))
    assert regroup(layout, (_B, _S, _H, _D)) == _SPLIT


def test_heads_split_into_groups_and_join_again() -> None:
    grouped = regroup(_SPLIT, (_B, _S, Size(2), Size(3), _D))
    assert grouped is not None
    assert grouped[2] == (Factor(HEAD, Size(2), Size(3)),)
    assert grouped[3] == (Factor(HEAD, Size(3), ONE),)
    assert regroup(grouped, (_B, _S, _H, _D)) == _SPLIT


def test_digits_in_the_wrong_order_do_not_join() -> None:
    swapped = (Factor(HEAD, Size(3), ONE), Factor(HEAD, Size(2), Size(3)))
    assert joined(swapped) == swapped


@pytest.mark.parametrize(
    "sizes",
    [
        (_B, Size(1, ("t",)), Size(48)),  # another name for the tokens
        (_S, _B, Size(48)),  # the other way round
        (_B, _S, Size(40)),
        (_B, _S, Size(4), Size(12)),  # cuts a head in a way that 6 heads do not divide
        (_B, _S),
    ],
)
def test_what_cannot_be_proven_is_none(sizes: tuple[Size, ...]) -> None:
    assert regroup(_SPLIT, sizes) is None


def test_size_one_is_no_digit() -> None:
    assert axis(HEAD, ONE) == ()
    assert extent(_SPLIT, HEAD) == _H
    assert extent((), HEAD) == ONE


def test_part_of_an_axis_is_not_whole() -> None:
    part: Layout = ((Factor(HEAD, Size(2), Size(3)),), axis(ROW, _S))
    assert are_whole(part, _SPLIT, (ROW,))
    assert not are_whole(part, _SPLIT, (HEAD,))
