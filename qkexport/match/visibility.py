"""Masks that only say which tokens come before which: causal, sliding windows.

    And(column <= row, column > row - w, padding)    causal, window_left = w - 1, mask: padding
    Where(tril(ones), 0, -max)                       causal, no mask

Kernels skip what a triangle hides; a mask they must read. What remains of a mask stays a mask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from qkexport.match.core import Mask
from qkexport.match.factors import aligned_layout
from qkexport.match.facts import Facts, View, producer
from qkexport.match.grids import Bound, find_bound
from qkexport.match.layout import COLUMN, ROW, in_digits, labels
from qkexport.match.moves import whole_step_back
from qkexport.match.offsets import Offset
from qkexport.match.sizes import ONE, Size

_HIDES: Final = -1e4  # exp of it is zero whatever the normalized scores are


@dataclasses.dataclass(frozen=True)
class Visibility:
    """What the masks of an attention say.

    Attributes:
        masks: What is not about the order of tokens.
        causal: A token sees none after itself.
        window_left: Tokens before itself that it sees; -1 is all.
        window_right: Tokens after itself that it sees; -1 is all.
    """

    masks: tuple[Mask, ...]
    causal: bool = False
    window_left: int = -1
    window_right: int = -1


@dataclasses.dataclass(frozen=True)
class Rows:
    """Lengths that masks are about.

    Attributes:
        queries: Query tokens.
        keys: New key tokens.
        past: Tokens before them, which may differ by batch entry.
    """

    queries: Size
    keys: Size
    past: Offset

    @property
    def single(self) -> tuple[str, ...]:
        """ROW and COLUMN, where there is only one."""
        one_column = self.keys == ONE and self.past.known == 0
        return (ROW,) * (self.queries == ONE) + (COLUMN,) * one_column


def visibility(facts: Facts, masks: Sequence[Mask], rows: Rows) -> Visibility:
    """Takes causal triangles and windows out of masks."""
    found = Visibility(())
    for mask in masks:
        found = _with_mask(facts, found, mask, rows, alone=len(masks) == 1)
    return found


def _with_mask(
    facts: Facts, found: Visibility, mask: Mask, rows: Rows, *, alone: bool
) -> Visibility:
    if in_digits(mask.view.layout, (ROW, COLUMN)):
        return dataclasses.replace(found, masks=(*found.masks, mask))
    if (drawn := _drawn(facts, mask)) is not None:
        return _with_drawn(found, mask, drawn, rows, alone=alone)
    kept = _as_kept(facts, mask)
    if kept is None:
        return dataclasses.replace(found, masks=(*found.masks, mask))
    condition, negated, fill = kept
    if negated:
        hides_nothing = facts.elements.of(condition.value) is False
        parts = [] if hides_nothing else [(condition, True)]
    else:
        parts = [(view, False) for view in _all_of(facts, condition)]
    split = found
    rest: list[View] = []
    for view, inverted in parts:
        narrowed = _narrowed(facts, split, view, rows, inverted=inverted)
        if narrowed is None:
            rest.append(view)
        else:
            split = narrowed
    same = fill == -np.inf or (alone and _sees_something(split, rows))
    if not same or (rest and (negated or fill != -np.inf)):
        return dataclasses.replace(found, masks=(*found.masks, mask))
    left = tuple(Mask(view, keeps=True) for view in rest)
    return dataclasses.replace(split, masks=(*found.masks, *left))


def _as_kept(facts: Facts, mask: Mask) -> tuple[View, bool, float] | None:
    """(condition, whether it hides rather than keeps, fill) of a mask that only hides."""
    if mask.keeps is not None:
        return (mask.view, not mask.keeps, mask.fill) if mask.fill <= _HIDES else None
    view = mask.view
    while (move := whole_step_back(facts, view)) is not None:
        view = move.view
    node = producer(view.value, "Where")
    if node is None or node.inputs[0] is None:
        return None
    layout = aligned_layout(facts, node.inputs[0], view.layout)
    fills = [facts.constants.scalar(value) for value in node.inputs[1:]]
    if layout is None or None in fills or 0.0 not in fills:
        return None
    fill = min(item for item in fills if item is not None) * mask.factor
    if fill > _HIDES:
        return None
    return View(node.inputs[0], layout), fills[0] != 0.0, fill


def _all_of(facts: Facts, view: View) -> Iterator[View]:
    """The conditions that And joins; without those that always hold."""
    if facts.elements.of(view.value) is True:
        return
    node = producer(view.value, "And")
    move = whole_step_back(facts, view)
    if node is not None and None not in node.inputs:
        for value in node.inputs:
            layout = None if value is None else aligned_layout(facts, value, view.layout)
            if value is None or layout is None:
                yield view
                return
        for value in node.inputs:
            layout = None if value is None else aligned_layout(facts, value, view.layout)
            if value is not None and layout is not None:
                yield from _all_of(facts, View(value, layout))
    elif move is not None:
        yield from _all_of(facts, move.view)
    else:
        yield view


def _narrowed(
    facts: Facts, found: Visibility, view: View, rows: Rows, *, inverted: bool
) -> Visibility | None:
    """The visibility with one more bound, or None where a condition is no bound."""
    bound = find_bound(facts, view, rows.single)
    if bound is None:
        return None
    return _with_bound(found, bound.negated() if inverted else bound, rows)


def _with_bound(found: Visibility, bound: Bound, rows: Rows) -> Visibility | None:
    distance = bound.limit.plus(rows.past, -1).known
    if distance is None:
        return None
    if bound.is_upper and distance == 0:
        return dataclasses.replace(found, causal=True)
    if bound.is_upper and distance > 0 and found.window_right in (-1, distance):
        return dataclasses.replace(found, window_right=distance)
    if not bound.is_upper and distance <= 0 and found.window_left in (-1, -distance):
        return dataclasses.replace(found, window_left=-distance)
    return None


def _sees_something(found: Visibility, rows: Rows) -> bool:
    """Whether every row sees a key, so that it does not matter how the others are hidden."""
    return found.window_left == -1 or rows.queries == rows.keys


def _drawn(facts: Facts, mask: Mask) -> tuple[npt.NDArray[np.bool_], float] | None:
    """(what is kept, fill) of a constant mask that only hides, over rows and columns."""
    array = facts.constants.array(mask.view.value)
    names = [labels(factors) for factors in mask.view.layout[-2:]]
    if array is None or array.ndim < 2 or names != [(ROW,), (COLUMN,)]:
        return None
    kept, fill = array, mask.fill
    if mask.keeps is None:
        lowest = float(array.min()) * mask.factor
        if lowest > _HIDES or not np.isin(array, (0, array.min())).all():
            return None
        kept, fill = array == 0, lowest
    elif not mask.keeps:
        kept = np.logical_not(array)
    planes = kept.reshape(-1, *array.shape[-2:]).astype(np.bool_)
    return (planes[0], fill) if (planes == planes[0]).all() and fill <= _HIDES else None


def _with_drawn(
    found: Visibility,
    mask: Mask,
    drawn: tuple[npt.NDArray[np.bool_], float],
    rows: Rows,
    *,
    alone: bool,
) -> Visibility:
    kept, fill = drawn
    past = rows.past.known
    bounds = None if past is None else _band(kept, past)
    split: Visibility | None = found
    for bound in bounds or ():
        split = None if split is None else _with_bound(split, bound, rows)
    same = fill == -np.inf or (alone and bool(kept.any(axis=1).all()))
    if bounds is None or split is None or not same:
        return dataclasses.replace(found, masks=(*found.masks, mask))
    return split


def _band(kept: npt.NDArray[np.bool_], past: int) -> list[Bound] | None:
    """The bounds that keep just these entries; none where all are kept."""
    ahead = np.arange(kept.shape[1]) - np.arange(kept.shape[0])[:, None]
    if not kept.any():
        return None
    least, most = int(ahead[kept].min()), int(ahead[kept].max())
    if not np.array_equal(kept, (least <= ahead) & (ahead <= most)):
        return None
    upper = [Bound(True, Offset(most))] if most < ahead.max() or most == past else []
    lower = [Bound(False, Offset(least))] if least > ahead.min() else []
    return [*upper, *lower]
