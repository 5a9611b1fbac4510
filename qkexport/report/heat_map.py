"""The heat map of an output: rectangles of one colour, merged where neighbours are alike."""

from __future__ import annotations

import itertools
from typing import Any, Final

from qkexport.compare import OutputComparison
from qkexport.report.text import percent

# Tenths of the allowance, then what is beyond it.
HEAT_STEPS: Final = (*map(str, range(10)), "x")
_BEYOND: Final = HEAT_STEPS[-1]
_HEIGHT: Final = 14
_WIDTHS: Final = (10, 28)  # of a cell, at least and at most
_WIDE: Final = 420  # what few cells are stretched to
_LABELS: Final = 16  # at most as many rows carry their number


def heat_map(output: OutputComparison) -> dict[str, Any] | None:
    """Rectangles and labels in pixels, or None for an output without positions.

    Cells beyond the allowance keep a rectangle of their own.
    """
    if not output.heat:
        return None
    columns = len(output.heat[0])
    width = min(max(_WIDE // columns, _WIDTHS[0]), _WIDTHS[1])
    every = -(-len(output.heat) // _LABELS)
    return {
        "cell": _HEIGHT,
        "width": columns * width,
        "height": len(output.heat) * _HEIGHT,
        "last": str(output.heat_positions - 1),
        "rows": [
            {
                "index": index,
                "label": str(index) if index % every == 0 else None,
                "y": index * _HEIGHT,
                "runs": _runs(row, width, output.heat_positions),
            }
            for index, row in enumerate(output.heat)
        ],
    }


def heat_step(usage: float) -> str:
    """Name of the colour of a cell."""
    return _BEYOND if usage > 1 else HEAT_STEPS[min(9, int(max(0.0, usage) * 10))]


def _runs(row: tuple[float, ...], width: int, positions: int) -> list[dict[str, Any]]:
    """Neighbouring cells of one colour, and the positions that they stand for."""
    cells = [(heat_step(usage), column, usage) for column, usage in enumerate(row)]
    runs = []
    for (step, _), group in itertools.groupby(cells, key=_alone_if_beyond):
        members = list(group)
        first, last = members[0][1], members[-1][1]
        start, end = first * positions // len(row), -(-(last + 1) * positions // len(row)) - 1
        place = f"position {start}" if start == end else f"positions {start} to {end}"
        worst = max(usage for _, _, usage in members)
        runs.append(
            {
                "step": step,
                "x": first * width,
                "width": (last - first + 1) * width - 1,
                "where": place,
                "usage": percent(worst),
            }
        )
    return runs


def _alone_if_beyond(cell: tuple[str, int, float]) -> tuple[str, int]:
    step, column, _ = cell
    return step, column if step == _BEYOND else -1
