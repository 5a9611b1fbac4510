"""Reductions of a block of rows: a short way where all is finite, a careful one elsewhere."""

from __future__ import annotations

import dataclasses
import math

import torch

from qkexport.compare.kinds import Kind, kind_counts, wrong_kind
from qkexport.compare.tolerance import Tolerance


@dataclasses.dataclass(frozen=True)
class Block:
    """What a pass over some rows leaves; tensors are `[num_rows]` unless they say otherwise.

    Attributes:
        error: Largest error of the candidate, finite pairs only.
        baseline_error: Largest error of PyTorch.
        magnitude: Largest finite magnitude in the oracle.
        excess: Largest error beyond the tolerance the user gave; -inf where derived.
        misplaced: Elements of a wrong kind.
        kinds: `[4, 4]`, see `KindTable`.
        products: `[3]`: sums of candidate x oracle and of both squares.
        relative: Largest error relative to its element.
        reference_faults: Elements where PyTorch is not finite though the exact answer is.
    """

    error: torch.Tensor
    baseline_error: torch.Tensor
    magnitude: torch.Tensor
    excess: torch.Tensor
    misplaced: torch.Tensor
    kinds: torch.Tensor
    products: torch.Tensor
    relative: float
    reference_faults: int

    @classmethod
    def of(
        cls,
        candidate: torch.Tensor,
        oracle: torch.Tensor,
        baseline: torch.Tensor | None,
        tolerance: Tolerance,
    ) -> Block:
        """Reduces rows `[num_rows, columns]` of one output."""
        magnitude = _magnitude(oracle)
        # false for NaN, and where rounding the oracle to the type could overflow
        if float(magnitude.max()) <= torch.finfo(candidate.dtype).max:
            found = cls._of_finite(candidate.double(), oracle, baseline, tolerance, magnitude)
            if found is not None:
                return found
        return cls._of_any(candidate, oracle, baseline, tolerance)

    @classmethod
    def _of_finite(
        cls,
        got: torch.Tensor,
        exact: torch.Tensor,
        baseline: torch.Tensor | None,
        tolerance: Tolerance,
        magnitude: torch.Tensor,
    ) -> Block | None:
        """None when an error is not finite, which takes no pass to find out."""
        difference = (got - exact).abs_()
        error = difference.amax(dim=1)
        reference = torch.zeros_like(error)
        if baseline is not None:
            reference = (baseline.double() - exact).abs_().amax(dim=1)
        if not _all_finite(error + reference):
            return None
        kinds = torch.zeros(4, 4, dtype=torch.int64)
        kinds[Kind.FINITE, Kind.FINITE] = got.numel()
        return cls(
            error=error,
            baseline_error=reference,
            magnitude=magnitude,
            excess=_excess(difference, exact, tolerance),
            misplaced=torch.zeros(len(error), dtype=torch.int64),
            kinds=kinds,
            products=_products(got, exact),
            relative=_relative(difference, exact),
            reference_faults=0,
        )

    @classmethod
    def _of_any(
        cls,
        candidate: torch.Tensor,
        oracle: torch.Tensor,
        baseline: torch.Tensor | None,
        tolerance: Tolerance,
    ) -> Block:
        exact = torch.where(torch.isfinite(oracle), oracle, 0.0)
        both = torch.isfinite(candidate) & torch.isfinite(oracle)
        got = torch.where(both, candidate.double(), exact)
        difference = (got - exact).abs_()
        error = difference.amax(dim=1)
        faults = 0
        if baseline is not None:
            representable = torch.isfinite(oracle.to(candidate.dtype))
            faults = int((representable & ~torch.isfinite(baseline)).sum())
        return cls(
            error=error,
            baseline_error=torch.zeros_like(error)
            if baseline is None
            else row_errors(baseline, oracle),
            magnitude=_magnitude(exact),
            excess=_excess(difference, exact, tolerance),
            misplaced=wrong_kind(oracle, candidate, baseline).sum(dim=1),
            kinds=kind_counts(oracle, candidate),
            products=_products(got, exact),
            relative=_relative(difference, exact),
            reference_faults=faults,
        )


def row_errors(x: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """Largest `|x - oracle|` of each row `[num_rows, columns]`, over pairs that are finite."""
    difference = (x.double() - oracle.double()).abs_()
    error = difference.amax(dim=1)
    if _all_finite(error):
        return error
    both = torch.isfinite(x) & torch.isfinite(oracle)
    return torch.where(both, difference, 0.0).amax(dim=1)


def _all_finite(x: torch.Tensor) -> bool:
    """A sum is finite only if every term is; a sum that overflows takes the long way."""
    return bool(torch.isfinite(x.sum()))


def _magnitude(exact: torch.Tensor) -> torch.Tensor:
    return torch.maximum(-exact.amin(dim=1), exact.amax(dim=1))  # aminmax takes 20 times longer


def _excess(difference: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    if not tolerance.given:
        return torch.full((len(exact),), -torch.inf, dtype=torch.float64)
    allowed = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * exact.abs()
    return (difference - allowed).amax(dim=1)


def _products(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    x, y = got.flatten(), exact.flatten()
    return torch.stack([x.dot(y), x.dot(x), y.dot(y)])


def _relative(difference: torch.Tensor, exact: torch.Tensor) -> float:
    """Elements of zero are left out; the differences are overwritten."""
    relative = difference.div_(exact).abs_()
    largest = float(relative.amax())
    if math.isfinite(largest):
        return largest
    return float(relative.nan_to_num_(nan=0.0, posinf=0.0).amax())
