"""One pass over an output: what later judgements need, reduced to numbers per row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

import torch

from qkexport.compare.kinds import KindTable, kind_counts, wrong_kind
from qkexport.compare.tolerance import Tolerance
from qkexport.compare.ulp import HISTOGRAM_BINS, ulp_histogram

# Elements in float64 at a time: logits over a large vocabulary are never copied whole.
_CHUNK_ELEMENTS: Final = 2**22


@dataclasses.dataclass(frozen=True)
class Scan:
    """Reductions of one output; tensors are `[num_rows]`.

    Attributes:
        error: Largest error of the candidate in the row, finite pairs only.
        column: Where in the row it is.
        baseline_error: Largest error of PyTorch in the same type.
        magnitude: Largest finite magnitude in the oracle.
        excess: Largest error beyond the tolerance the user gave; -inf where derived.
        misplaced: Elements of a wrong kind.
        misplaced_column: Where the first of them is.
        kinds: Table of kinds.
        ulps: Histogram of distances in units in the last place.
        cosine: Cosine between candidate and oracle over all finite pairs; nan when one is zero.
        max_relative_error: Largest error relative to its element, over elements above zero.
    """

    error: torch.Tensor
    column: torch.Tensor
    baseline_error: torch.Tensor
    magnitude: torch.Tensor
    excess: torch.Tensor
    misplaced: torch.Tensor
    misplaced_column: torch.Tensor
    kinds: KindTable
    ulps: tuple[int, ...]
    cosine: float
    max_relative_error: float


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """`[..., columns]` as `[num_rows, columns]`; scalars and vectors are one row."""
    return x.reshape(-1, x.shape[-1]) if x.dim() > 1 else x.reshape(1, -1)


def chunks(*tensors: torch.Tensor | None) -> Iterator[tuple[torch.Tensor | None, ...]]:
    """Row blocks of tensors of one shape `[num_rows, columns]`, side by side."""
    first = next(x for x in tensors if x is not None)
    step = max(1, _CHUNK_ELEMENTS // max(1, first.shape[1]))
    for start in range(0, first.shape[0], step):
        yield tuple(None if x is None else x[start : start + step] for x in tensors)


def scan(
    candidate: torch.Tensor,
    oracle: torch.Tensor,
    baseline: torch.Tensor | None,
    tolerance: Tolerance,
) -> Scan:
    """Reduces three outputs of one shape, none of them empty, to a `Scan`.

    Args:
        candidate: Values to judge, of a floating type.
        oracle: Exact values, float64.
        baseline: PyTorch's values in the candidate's type, or None.
        tolerance: Only the numbers given by the user matter here.
    """
    blocks = []
    sums = torch.zeros(3, dtype=torch.float64)
    counts = torch.zeros(4, 4, dtype=torch.int64)
    ulps = torch.zeros(HISTOGRAM_BINS, dtype=torch.int64)
    relative, faults = 0.0, 0
    for c, o, b in chunks(
        as_rows(candidate), as_rows(oracle), None if baseline is None else as_rows(baseline)
    ):
        assert c is not None
        assert o is not None
        block = _Block.of(c, o, b, tolerance)
        blocks.append(block)
        sums += block.products
        counts += kind_counts(o, c)
        ulps += ulp_histogram(c, o)
        relative = max(relative, block.relative)
        faults += block.reference_faults
    table = tuple(tuple(int(n) for n in row) for row in counts)
    misplaced = torch.cat([block.misplaced for block in blocks])
    return Scan(
        error=torch.cat([block.error for block in blocks]),
        column=torch.cat([block.column for block in blocks]),
        baseline_error=torch.cat([block.baseline_error for block in blocks]),
        magnitude=torch.cat([block.magnitude for block in blocks]),
        excess=torch.cat([block.excess for block in blocks]),
        misplaced=misplaced,
        misplaced_column=torch.cat([block.misplaced_column for block in blocks]),
        kinds=KindTable(table, int(misplaced.sum()), faults),
        ulps=tuple(int(n) for n in ulps),
        cosine=float(sums[0] / (sums[1].sqrt() * sums[2].sqrt())),
        max_relative_error=relative,
    )


@dataclasses.dataclass(frozen=True)
class _Block:
    error: torch.Tensor
    column: torch.Tensor
    baseline_error: torch.Tensor
    magnitude: torch.Tensor
    excess: torch.Tensor
    misplaced: torch.Tensor
    misplaced_column: torch.Tensor
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
    ) -> _Block:
        exact = finite_or_zero(oracle)
        wrong = wrong_kind(oracle, candidate, baseline)
        got = torch.where(torch.isfinite(candidate), candidate.double(), exact)
        got = torch.where(torch.isfinite(oracle), got, exact)
        difference = (got - exact).abs()
        error, column = difference.max(dim=1)
        excess = torch.full_like(error, -torch.inf)
        if tolerance.given:
            allowed = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * exact.abs()
            excess = (difference - allowed).amax(dim=1)
        faults = 0
        if baseline is not None:
            representable = torch.isfinite(oracle.to(candidate.dtype))
            faults = int((representable & ~torch.isfinite(baseline)).sum())
        nonzero = exact != 0
        return cls(
            error=error,
            column=column,
            baseline_error=torch.zeros_like(error)
            if baseline is None
            else row_errors(baseline, oracle),
            magnitude=exact.abs().amax(dim=1),
            excess=excess,
            misplaced=wrong.sum(dim=1),
            misplaced_column=wrong.to(torch.int8).argmax(dim=1),
            products=torch.stack([(got * exact).sum(), (got * got).sum(), (exact * exact).sum()]),
            relative=float((difference / exact.abs())[nonzero].max()) if nonzero.any() else 0.0,
            reference_faults=faults,
        )


def finite_or_zero(x: torch.Tensor) -> torch.Tensor:
    """X in float64, zero where it is not finite."""
    return torch.where(torch.isfinite(x), x.double(), 0.0)


def row_errors(x: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """Largest `|x - oracle|` of each row `[num_rows, columns]`, over pairs that are finite."""
    both = torch.isfinite(x) & torch.isfinite(oracle)
    return torch.where(both, (x.double() - oracle.double()).abs(), 0.0).amax(dim=1)


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element of `shape` from its position in row-major order."""
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))
