"""One output against the oracle: what passes, what does not, and where the fault is."""

from __future__ import annotations

import math

import pytest
import torch

from qkexport.compare import Expectation, OutputComparison, Status, Tolerance, judge

SHAPE = (2, 5, 4, 59)  # [batch_size, num_heads, seqlen_q, head_dim]


def _oracle(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _judge(
    candidate: torch.Tensor,
    oracle: torch.Tensor,
    *,
    tolerance: Tolerance | None = None,
    num_heads: int | None = None,
    logits: bool = False,
    vacuous_fails: bool = True,
) -> OutputComparison:
    baseline = oracle.to(candidate.dtype)
    expected = Expectation(oracle, baseline, num_heads=num_heads, logits=logits)
    return judge("y", candidate, expected, tolerance or Tolerance(), vacuous_fails=vacuous_fails)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_to_the_type_passes(dtype: torch.dtype) -> None:
    oracle = _oracle()
    result = _judge(oracle.to(dtype), oracle)
    assert result.status is Status.MATCHED
    assert result.ulps[0] == oracle.numel()
    assert result.cosine == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_element_off_by_ten_ulps_of_its_row_fails(dtype: torch.dtype) -> None:
    oracle = _oracle()
    candidate = oracle.to(dtype)
    row = oracle[1, 3, 2]
    candidate[1, 3, 2, 17] += 10 * torch.finfo(dtype).eps * float(row.abs().max())
    result = _judge(candidate, oracle)
    assert result.status is Status.MISMATCHED
    assert result.rows_failed == 1
    assert result.worst is not None
    assert result.worst.index == (1, 3, 2, 17)
    assert result.worst.head == 3
    assert result.worst.error > result.worst.allowed


def test_swapped_heads_fail_however_small_they_are() -> None:
    oracle = _oracle()
    oracle[:, 1:3] *= 1e-6
    candidate = oracle.float()
    candidate[:, [1, 2]] = candidate[:, [2, 1]]
    result = _judge(candidate, oracle)
    assert result.status is Status.MISMATCHED
    assert result.max_abs_error < 1e-5
    assert result.head_usage is not None
    assert [usage > 1 for usage in result.head_usage] == [False, True, True, False, False]


def test_heads_side_by_side_are_rows_of_their_own() -> None:
    oracle = _oracle(shape=(2, 7, 4 * 16))
    oracle[..., 16:32] *= 1e-7
    candidate = oracle.float()
    candidate[1, 3, 20] *= 1.001
    assert _judge(candidate, oracle).status is Status.MATCHED
    result = _judge(candidate, oracle, num_heads=4)
    assert result.status is Status.MISMATCHED
    assert result.worst is not None
    assert result.worst.index == (1, 3, 20)
    assert result.worst.head == 1


def test_all_zeros_fail_under_any_tolerance() -> None:
    oracle = _oracle()
    result = _judge(torch.zeros(SHAPE), oracle, tolerance=Tolerance(atol=100.0))
    assert result.status is Status.DEGENERATE
    assert result.detail == "is 0 everywhere, the reference is not"


def test_zeros_pass_where_pytorch_underflows_to_zero_too() -> None:
    oracle = _oracle() * 1e-12
    candidate = torch.zeros(SHAPE, dtype=torch.float16)
    assert _judge(candidate, oracle).status is Status.MATCHED


@pytest.mark.parametrize(
    ("oracle", "reason"),
    [
        (torch.zeros(3, 4, dtype=torch.float64), "is zero everywhere"),
        (torch.full((3, 4), 2.5, dtype=torch.float64), "is 2.5 everywhere"),
        (torch.zeros(0, 4, dtype=torch.float64), "is empty"),
        (torch.full((3, 4), math.nan, dtype=torch.float64), "is nowhere finite"),
    ],
    ids=["zero", "constant", "empty", "nan"],
)
def test_a_reference_that_tests_nothing_fails(oracle: torch.Tensor, reason: str) -> None:
    result = _judge(oracle.float(), oracle)
    assert result.status is Status.VACUOUS
    assert result.detail == f"the reference {reason}"
    assert _judge(oracle.float(), oracle, vacuous_fails=False).status is Status.MATCHED


def test_a_scalar_is_not_called_constant() -> None:
    oracle = torch.tensor(3.25, dtype=torch.float64)
    assert _judge(oracle.float(), oracle).status is Status.MATCHED
    assert _judge(oracle.float() + 1, oracle).status is Status.MISMATCHED


def test_a_value_where_a_constant_reference_has_another_fails() -> None:
    oracle = torch.full((3, 4), 2.5, dtype=torch.float64)
    result = _judge(torch.full((3, 4), 2.6), oracle, vacuous_fails=False)
    assert result.status is Status.MISMATCHED


def test_a_transposed_output_fails() -> None:
    oracle = _oracle(shape=(5, 7))
    result = _judge(oracle.float().T, oracle)
    assert result.status is Status.WRONG_SHAPE
    assert result.detail == "shape must be [5, 7], got [7, 5]"


def test_integers_where_floats_are_due_fail() -> None:
    oracle = _oracle()
    result = judge("y", oracle.long(), Expectation(oracle), Tolerance())
    assert result.status is Status.WRONG_DTYPE


def test_integers_must_be_equal() -> None:
    oracle = torch.arange(12).reshape(3, 4)
    assert judge("ids", oracle.int(), Expectation(oracle), Tolerance()).status is Status.MATCHED
    wrong = oracle.clone()
    wrong[1, 2] += 3
    result = judge("ids", wrong, Expectation(oracle), Tolerance())
    assert result.status is Status.MISMATCHED
    assert result.worst is not None
    assert (result.worst.index, result.worst.candidate, result.worst.oracle) == ((1, 2), 9, 6)


def test_a_given_tolerance_is_judged_element_by_element() -> None:
    oracle = torch.tensor([[1000.0, 1e-3]], dtype=torch.float64)
    candidate = torch.tensor([[1000.0, 2e-3]])
    assert not _judge(candidate, oracle, tolerance=Tolerance(rtol=1e-2))
    assert _judge(candidate, oracle, tolerance=Tolerance(atol=1e-2))


def test_logits_that_agree_are_counted() -> None:
    oracle = _oracle(shape=(2, 3, 101))
    result = _judge(oracle.float(), oracle, logits=True)
    assert result.argmax is not None
    assert (result.argmax.rows, result.argmax.agree, result.argmax.near_ties) == (6, 6, 0)


def test_a_near_tie_that_falls_the_other_way_is_ambiguous_not_wrong() -> None:
    oracle = _oracle(shape=(2, 101))
    oracle[0, 7], oracle[0, 50] = 9.0, 9.0 + 1e-8
    candidate = oracle.float()
    candidate[0, 50] = candidate[0, 7] - 1e-6
    result = _judge(candidate, oracle, logits=True)
    assert result.status is Status.AMBIGUOUS
    assert result
    assert result.argmax is not None
    assert result.argmax.near_ties == 1
    assert result.argmax.smallest_margin == pytest.approx(1e-8, rel=1e-3)


def test_a_clear_argmax_that_changes_is_a_mismatch() -> None:
    oracle = _oracle(shape=(2, 101))
    candidate = oracle.float()
    candidate[0, 3] = 50.0
    result = _judge(candidate, oracle, logits=True)
    assert result.status is Status.MISMATCHED
    assert result.argmax is not None
    assert (result.argmax.agree, result.argmax.near_ties) == (1, 0)


def test_the_factor_that_would_pass_is_told() -> None:
    oracle = _oracle(shape=(64, 33))
    baseline = oracle.float()
    baseline[:, 0] += 1e-5
    candidate = oracle.float()
    candidate[:, 0] += 1e-4
    result = judge("y", candidate, Expectation(oracle, baseline), Tolerance())
    assert not result
    assert result.needed_factor == pytest.approx(10, rel=0.1)
