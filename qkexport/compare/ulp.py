"""Distances in units in the last place of the candidate's type."""

from __future__ import annotations

from typing import Final

import torch

_INTEGER_TYPES: Final = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
# 0, 1, 2, 3-4, 5-8, ... , 2**13 and more: a decade is about three bins.
HISTOGRAM_BINS: Final = 16
_BIN_ENDS: Final = (0, *(2**power for power in range(HISTOGRAM_BINS - 2)))
HISTOGRAM_LABELS: Final = (
    "0", "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1k", "2k", "4k", "8k", ">8k",
)  # fmt: skip


def ulp_distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """How many representable values lie between x and y, as int64 of their shape.

    Args:
        x: Finite values of a floating type.
        y: Finite values of the same type and shape.
    """
    distance = (_ordered(x) - _ordered(y)).abs()
    return torch.where(distance < 0, torch.iinfo(torch.int64).max, distance)  # overflow of float64


def _ordered(x: torch.Tensor) -> torch.Tensor:
    """Bit patterns as integers that increase with the value; both zeros are 0."""
    bits = x.contiguous().view(_INTEGER_TYPES[x.dtype]).to(torch.int64)
    lowest = torch.iinfo(_INTEGER_TYPES[x.dtype]).min
    return torch.where(bits < 0, lowest - bits, bits)


def ulp_histogram(candidate: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """`[HISTOGRAM_BINS]` counts of the distance to the correctly rounded oracle, finite pairs."""
    rounded = oracle.to(candidate.dtype)
    both = torch.isfinite(candidate) & torch.isfinite(rounded)
    if not both.all():
        candidate, rounded = candidate[both], rounded[both]
    bins = torch.bucketize(ulp_distance(candidate, rounded).flatten(), torch.tensor(_BIN_ENDS))
    return torch.bincount(bins, minlength=HISTOGRAM_BINS)
