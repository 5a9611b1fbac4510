"""Distances in units in the last place, and their bins."""

from __future__ import annotations

import math

import pytest
import torch

from qkexport.compare.ulp import HISTOGRAM_BINS, HISTOGRAM_LABELS, ulp_distance, ulp_histogram


def test_every_bin_has_a_label() -> None:
    assert len(HISTOGRAM_LABELS) == HISTOGRAM_BINS


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 4096, 8192, 8193, 10**6])
def test_a_distance_falls_into_the_bin_that_ends_at_or_above_it(steps: int) -> None:
    exact = torch.ones(1, dtype=torch.float64)
    bits = exact.float().view(torch.int32) + steps
    histogram = ulp_histogram(bits.view(torch.float32), exact)
    expected = steps if steps < 2 else min(math.ceil(math.log2(steps)) + 1, HISTOGRAM_BINS - 1)
    assert histogram.tolist() == [int(index == expected) for index in range(HISTOGRAM_BINS)]


def test_elements_that_are_not_finite_are_left_out() -> None:
    exact = torch.tensor([1.0, 2.0, torch.nan, torch.inf], dtype=torch.float64)
    got = torch.tensor([1.0, torch.inf, torch.nan, torch.inf])
    assert ulp_histogram(got, exact).sum() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_distances_count_values_across_zero(dtype: torch.dtype) -> None:
    tiny = torch.tensor([1], dtype=torch.int16 if dtype.itemsize == 2 else torch.int32).view(dtype)
    assert ulp_distance(tiny, -tiny).tolist() == [2]
    assert ulp_distance(torch.zeros(1, dtype=dtype), -torch.zeros(1, dtype=dtype)).tolist() == [0]
