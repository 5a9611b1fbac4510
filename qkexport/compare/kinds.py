"""Non-finite values are told apart before any arithmetic is done on them."""

from __future__ import annotations

import dataclasses
import enum

import torch


class Kind(enum.IntEnum):
    """What an element is, arithmetic aside."""

    FINITE = 0
    NAN = 1
    POSITIVE_INFINITY = 2
    NEGATIVE_INFINITY = 3


KIND_NAMES = ("finite", "nan", "+inf", "-inf")


def kinds_of(x: torch.Tensor) -> torch.Tensor:
    """The `Kind` of every element, as int64 of the shape of x."""
    infinite = torch.isinf(x)
    kinds = torch.full(x.shape, int(Kind.FINITE), dtype=torch.int64, device=x.device)
    kinds[torch.isnan(x)] = int(Kind.NAN)
    kinds[infinite & (x > 0)] = int(Kind.POSITIVE_INFINITY)
    kinds[infinite & (x < 0)] = int(Kind.NEGATIVE_INFINITY)
    return kinds


@dataclasses.dataclass(frozen=True)
class KindTable:
    """How often each kind of the oracle met each kind of the candidate.

    Attributes:
        counts: `counts[oracle][candidate]`, 4 x 4.
        misplaced: Elements whose kind is wrong: see `wrong_kind`.
        reference_faults: Elements where PyTorch itself is not finite though the exact answer is.
    """

    counts: tuple[tuple[int, ...], ...]
    misplaced: int
    reference_faults: int

    @property
    def finite_pairs(self) -> int:
        return self.counts[Kind.FINITE][Kind.FINITE]


def wrong_kind(
    oracle: torch.Tensor, candidate: torch.Tensor, baseline: torch.Tensor | None
) -> torch.Tensor:
    """True where the candidate's kind is one that it may not have.

    It may have the kind of the exact value, the kind of the exact value rounded to the candidate's
    type (float16 overflows to infinity), and the kind that PyTorch has in that type, where that
    is not finite: a limit of the type or of PyTorch is not the candidate's fault.

    Args:
        oracle: Exact values, float64.
        candidate: Values to judge, of its own type, same shape.
        baseline: PyTorch's values in the candidate's type, or None.
    """
    kinds = kinds_of(candidate)
    wrong = (kinds != kinds_of(oracle)) & (kinds != kinds_of(oracle.to(candidate.dtype)))
    if baseline is not None:
        excused = kinds_of(baseline)
        wrong &= (kinds != excused) | (excused == int(Kind.FINITE))
    return wrong


def kind_counts(oracle: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    """`[4, 4]` counts: row the oracle's kind, column the candidate's."""
    pairs = kinds_of(oracle).flatten() * 4 + kinds_of(candidate).flatten()
    return torch.bincount(pairs, minlength=16).reshape(4, 4)
