"""Two times PyTorch's error plus a floor: neither more nor less."""

from __future__ import annotations

import pytest
import torch

from qkexport.compare.tolerance import NOISE_FACTOR, RowErrors, Tolerance, allowed_errors


def _rows(
    baseline: list[float], magnitude: list[float], noise: list[float] | None = None
) -> RowErrors:
    def wide(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return RowErrors(
        wide([0.0] * len(baseline)),
        wide(baseline),
        wide(magnitude),
        None if noise is None else wide(noise),
    )


@pytest.mark.parametrize(
    ("dtype", "ulp"),
    [(torch.float32, 2.0**-23), (torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)],
)
def test_the_floor_is_an_ulp_and_a_random_walk_in_float32(dtype: torch.dtype, ulp: float) -> None:
    floor = Tolerance(reduction_length=100).relative_floor(dtype)
    assert floor == pytest.approx(ulp + 10 * 2.0**-24, rel=1e-12)


def test_without_a_baseline_only_the_floor_is_allowed() -> None:
    allowed = allowed_errors(_rows([0.0], [3.0]), Tolerance(), torch.float32)
    assert float(allowed) == pytest.approx(3 * 1.5 * 2.0**-23, rel=1e-6)


def test_a_row_gets_twice_what_pytorch_errs_on_it() -> None:
    baseline = [1e-3] + [1e-6] * 99
    allowed = allowed_errors(_rows(baseline, [1.0] * 100), Tolerance(), torch.float32)
    assert float(allowed[0]) == pytest.approx(2e-3, rel=1e-3)


def test_one_bad_row_of_pytorch_does_not_excuse_the_others() -> None:
    baseline = [1e-3] + [1e-6] * 99
    allowed = allowed_errors(_rows(baseline, [1.0] * 100), Tolerance(), torch.float32)
    assert float(allowed[1:].max()) < 2.5e-6


def test_a_lucky_row_of_pytorch_gets_what_is_usual() -> None:
    baseline = [0.0] + [1e-5] * 99
    allowed = allowed_errors(_rows(baseline, [1.0] * 100), Tolerance(), torch.float32)
    assert float(allowed[0]) == pytest.approx(2e-5, rel=1e-1)


def test_small_rows_get_small_allowances() -> None:
    magnitude = [1.0] * 50 + [1e-4] * 50
    baseline = [1e-7 * size for size in magnitude]
    allowed = allowed_errors(_rows(baseline, magnitude), Tolerance(), torch.float32)
    assert float(allowed[50:].max()) < 1e-10


def test_the_whole_stays_at_twice_pytorchs_largest_error() -> None:
    baseline = [1e-6] * 10 + [1e-3] * 90  # the usual relative error is that of small rows
    magnitude = [1e3] * 10 + [1.0] * 90
    rows = _rows(baseline, magnitude)
    allowed = allowed_errors(rows, Tolerance(), torch.float32)
    floor = 1e3 * Tolerance().relative_floor(torch.float32)
    assert float(allowed.max()) <= 2 * 1e-3 + floor * 1.001


def test_measured_noise_is_added_six_times() -> None:
    without = allowed_errors(_rows([0.0], [1.0]), Tolerance(), torch.float32)
    with_noise = allowed_errors(_rows([0.0], [1.0], [1e-3]), Tolerance(), torch.float32)
    assert float(with_noise - without) == pytest.approx(NOISE_FACTOR * 1e-3)


def test_the_derivation_names_type_and_length() -> None:
    text = Tolerance(reduction_length=64).describe(torch.bfloat16)
    assert text == (
        "2 x PyTorch's bfloat16 error + row magnitude x (ulp 0.0078 + 2^-24 x sqrt(64))"
    )
    assert Tolerance(atol=1e-3).describe(torch.float32) == "given: atol 0.001 + rtol 0 * |oracle|"
