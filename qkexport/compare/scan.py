"""One pass over an output: what later judgements need, reduced to numbers per row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

import torch

from qkexport.compare.block import Block
from qkexport.compare.kinds import KindTable
from qkexport.compare.tolerance import Tolerance
from qkexport.compare.ulp import ulp_histogram

# Elements at a time: three or four arrays of 512 KB stay in cache, a fifth faster than of 2 MB, and
# logits are never copied whole.
_CHUNK_ELEMENTS: Final = 2**16
_HISTOGRAM_ELEMENTS: Final = 2**16


@dataclasses.dataclass(frozen=True)
class Scan:
    """Reductions of one output; tensors are `[num_rows]`.

    Attributes:
        error: Largest error of the candidate in the row, finite pairs only.
        baseline_error: Largest error of PyTorch in the same type.
        magnitude: Largest finite magnitude in the oracle.
        excess: Largest error beyond the tolerance the user gave; -inf where derived.
        misplaced: Elements of a wrong kind.
        kinds: Table of kinds.
        ulps: Histogram of distances in units in the last place, of about 65,000 elements.
        cosine: Cosine between candidate and oracle over all finite pairs; nan when one is zero.
        max_relative_error: Largest error relative to its element, over elements above zero.
    """

    error: torch.Tensor
    baseline_error: torch.Tensor
    magnitude: torch.Tensor
    excess: torch.Tensor
    misplaced: torch.Tensor
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
    whole = as_rows(candidate), as_rows(oracle), None if baseline is None else as_rows(baseline)
    blocks = []
    for c, o, b in chunks(*whole):
        assert c is not None
        assert o is not None
        blocks.append(Block.of(c, o, b, tolerance))
    error, misplaced = (
        torch.cat([getattr(block, name) for block in blocks]) for name in ("error", "misplaced")
    )
    kinds = sum((block.kinds for block in blocks), torch.zeros(4, 4, dtype=torch.int64))
    table = tuple(tuple(int(n) for n in row) for row in kinds)
    sums = sum((block.products for block in blocks), torch.zeros(3, dtype=torch.float64))
    rows = _sampled_rows(error, whole[0].shape[1])
    return Scan(
        error=error,
        baseline_error=torch.cat([block.baseline_error for block in blocks]),
        magnitude=torch.cat([block.magnitude for block in blocks]),
        excess=torch.cat([block.excess for block in blocks]),
        misplaced=misplaced,
        kinds=KindTable(
            table, int(misplaced.sum()), sum(block.reference_faults for block in blocks)
        ),
        ulps=tuple(int(n) for n in ulp_histogram(whole[0][rows], whole[1][rows])),
        cosine=float(sums[0] / (sums[1].sqrt() * sums[2].sqrt())),
        max_relative_error=max(block.relative for block in blocks),
    )


def _sampled_rows(error: torch.Tensor, columns: int) -> torch.Tensor:
    """Rows for the histogram: all, or evenly spaced ones and the worst."""
    count = max(1, _HISTOGRAM_ELEMENTS // max(1, columns))
    if count >= len(error):
        return torch.arange(len(error))
    spaced = torch.linspace(0, len(error) - 1, count).long()
    rows: torch.Tensor = torch.cat([spaced, error.argmax()[None]])
    return rows


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element of `shape` from its position in row-major order."""
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))
