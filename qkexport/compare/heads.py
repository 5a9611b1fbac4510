"""Rows by head and position, so that one wrong head cannot hide behind the others."""

from __future__ import annotations

import dataclasses
from typing import Final

import torch

from qkexport.compare.block import row_errors
from qkexport.compare.expectation import Expectation
from qkexport.compare.scan import as_rows

_HEAT_COLUMNS: Final = 48
_HEAT_ROWS: Final = 64


def split(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    """`[..., H*D]` as `[..., H, D]`."""
    return x.reshape(*x.shape[:-1], num_heads, -1)


def by_head(candidate: torch.Tensor, expected: Expectation) -> tuple[torch.Tensor, Expectation]:
    """`[..., H*D]` as `[..., H, D]`, so that a head is a row."""
    heads = expected.num_heads or 1
    baseline = None if expected.baseline is None else split(expected.baseline, heads)
    by_row = dataclasses.replace(expected, oracle=split(expected.oracle, heads), baseline=baseline)
    return split(candidate, heads), by_row


def head_axis(candidate: torch.Tensor, expected: Expectation) -> int | None:
    if expected.num_heads:
        return candidate.dim() - 2
    return 1 if candidate.dim() == 4 else None


def usage_grid(
    usage: torch.Tensor, candidate: torch.Tensor, expected: Expectation
) -> torch.Tensor | None:
    """Row usage as `[heads or batch, positions]`; None for outputs without positions."""
    axis = head_axis(candidate, expected)
    if axis is None and candidate.dim() < 3:
        return None
    leading = usage.reshape(candidate.shape[:-1])
    if axis is None:
        return leading.flatten(0, -2)
    if axis == 0:
        return leading[:, None]
    position = 2 if axis == 1 and candidate.dim() == 4 and not expected.num_heads else axis - 1
    ordered = leading.movedim((axis, position), (0, 1))
    return ordered.reshape(*ordered.shape[:2], -1).amax(dim=2)


def head_usage(
    usage: torch.Tensor, candidate: torch.Tensor, expected: Expectation
) -> tuple[float, ...] | None:
    if head_axis(candidate, expected) is None:
        return None
    grid = usage_grid(usage, candidate, expected)
    assert grid is not None
    return tuple(float(x) for x in grid.amax(dim=1))


def heat(
    usage: torch.Tensor, candidate: torch.Tensor, expected: Expectation
) -> tuple[tuple[tuple[float, ...], ...], int]:
    """The grid downsampled to what can be drawn, and the positions that its columns stand for."""
    grid = usage_grid(usage, candidate, expected)
    if grid is None:
        return (), 0
    positions = grid.shape[1]
    grid = grid[:_HEAT_ROWS].nan_to_num(posinf=torch.inf)
    columns = min(_HEAT_COLUMNS, grid.shape[1])
    reduced = torch.nn.functional.adaptive_max_pool1d(grid[None], columns)[0]
    return tuple(tuple(float(x) for x in row) for row in reduced), positions


def noise_rows(
    perturbed: torch.Tensor, oracle: torch.Tensor, num_heads: int | None
) -> torch.Tensor:
    """Largest effect of one draw of rounding noise on each row, `[num_rows]` float64."""
    if num_heads:
        perturbed = split(perturbed, num_heads)
        oracle = split(oracle, num_heads)
    return row_errors(as_rows(perturbed), as_rows(oracle))
