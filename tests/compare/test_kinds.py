"""Sixteen meetings of {finite, nan, +inf, -inf}, each with its own answer."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from qkexport.compare import Expectation, Status, Tolerance, judge
from qkexport.compare.kinds import Kind, kind_counts, kinds_of, wrong_kind

VALUES = {"finite": 1.0, "nan": math.nan, "+inf": math.inf, "-inf": -math.inf}


def _tensor(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor([2.0, -3.0, value], dtype=dtype)


def test_each_value_has_its_kind() -> None:
    x = torch.tensor([0.0, -1e38, math.nan, math.inf, -math.inf])
    expected = [
        Kind.FINITE,
        Kind.FINITE,
        Kind.NAN,
        Kind.POSITIVE_INFINITY,
        Kind.NEGATIVE_INFINITY,
    ]
    assert kinds_of(x).tolist() == [int(kind) for kind in expected]


@pytest.mark.parametrize(
    ("exact", "got"), list(itertools.product(VALUES, VALUES)), ids=lambda name: name
)
def test_a_pair_matches_exactly_when_both_are_of_one_kind(exact: str, got: str) -> None:
    oracle = _tensor(VALUES[exact], torch.float64)
    result = judge("y", _tensor(VALUES[got]), Expectation(oracle), Tolerance())
    assert bool(result) == (exact == got)
    assert result.status is (Status.MATCHED if exact == got else Status.NON_FINITE)
    assert result.kinds is not None
    names = list(VALUES)
    counted = result.kinds.counts[names.index(exact)][names.index(got)]
    assert counted == (3 if exact == got == "finite" else 1)
    if not result:
        assert result.worst is not None
        assert result.worst.index == (2,)


def test_counts_are_laid_out_oracle_by_candidate() -> None:
    oracle = torch.tensor([1.0, 1.0, math.nan], dtype=torch.float64)
    counts = kind_counts(oracle, torch.tensor([1.0, math.inf, -math.inf]))
    assert counts[Kind.FINITE].tolist() == [1, 0, 1, 0]
    assert counts[Kind.NAN].tolist() == [0, 0, 0, 1]


def test_float16_may_overflow_where_the_exact_value_does_not_fit() -> None:
    oracle = torch.tensor([1.0, 7e4, -7e4], dtype=torch.float64)
    candidate = oracle.to(torch.float16)
    assert torch.isinf(candidate[1:]).all()
    assert not wrong_kind(oracle, candidate, None).any()
    assert wrong_kind(oracle, -candidate, None).tolist() == [False, True, True]


def test_a_nan_of_pytorch_itself_is_not_the_candidates_fault() -> None:
    oracle = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    baseline = torch.tensor([[1.0, 2.0], [math.nan, math.nan]])
    for candidate in (oracle.float(), baseline):
        result = judge("y", candidate, Expectation(oracle, baseline), Tolerance())
        assert result.status is Status.MATCHED
        assert result.detail == "PyTorch is not finite at 2 elements"
    infinite = torch.tensor([[1.0, 2.0], [math.inf, 0.0]])
    assert judge("y", infinite, Expectation(oracle, baseline), Tolerance()).status is (
        Status.NON_FINITE
    )
