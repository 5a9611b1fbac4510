"""Places for the boxes of a diagram: rows by longest path, columns by the neighbours' places."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from qkexport.drawing.diagram import Box, BoxKind, Diagram

_CHARACTER: Final = 6.6  # pixels of a 11 px sans-serif font
_PADDING: Final = 9.0
_GAP: Final = 12.0
_LINE_HEIGHT: Final = 13.0
_ROW_GAP: Final = 24.0
_WIDEST_ROW: Final = 680.0  # wider ones send inputs up: two pictures fit beside each other
_SWEEPS: Final = 24


@dataclasses.dataclass(frozen=True)
class Place:
    """A box with its centre and size, in pixels."""

    box: Box
    x: float
    y: float
    width: float
    height: float

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


@dataclasses.dataclass(frozen=True)
class Layout:
    """All boxes in their places, with the size of the whole."""

    diagram: Diagram
    places: tuple[Place, ...]
    width: float
    height: float


def lay_out(diagram: Diagram) -> Layout:
    """Finds a place for every box; no two overlap."""
    sizes = [_size(box) for box in diagram.boxes]
    widths = [width for width, _ in sizes]
    rows = _narrowed(_rows(diagram), diagram, widths)
    columns = _columns(diagram, rows, widths)
    tops, height = _tops(rows, [height for _, height in sizes])
    left = min((columns[i] - sizes[i][0] / 2 for i in range(len(sizes))), default=0.0)
    right = max((columns[i] + sizes[i][0] / 2 for i in range(len(sizes))), default=0.0)
    row_of = {index: row for row, members in enumerate(rows) for index in members}
    places = tuple(
        Place(box, columns[i] - left, tops[row_of[i]], *sizes[i])
        for i, box in enumerate(diagram.boxes)
    )
    return Layout(diagram, places, right - left, height)


def _rows(diagram: Diagram) -> list[list[int]]:
    """Boxes by their longest distance from the top; what comes from outside sits near its use."""
    depth = [0] * len(diagram.boxes)
    for _ in diagram.boxes:  # as often as a path can be long; stops when nothing moves
        changed = False
        for source, target in diagram.lines:
            if depth[target] <= depth[source]:
                depth[target], changed = depth[source] + 1, True
        if not changed:
            break
    for index, box in enumerate(diagram.boxes):
        users = [depth[target] for source, target in diagram.lines if source == index]
        if box.kind in (BoxKind.INPUT, BoxKind.WEIGHT) and users:
            depth[index] = min(users) - 1
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for index, row in enumerate(depth):
        rows[row].append(index)
    return rows


def _narrowed(
    rows: Sequence[list[int]], diagram: Diagram, widths: Sequence[float]
) -> list[list[int]]:
    """Rows in which every second input of a wide row has moved to the row above."""
    narrow: list[list[int]] = []
    pushed: list[int] = []
    for row in reversed(rows):
        here, pushed = row + pushed, []
        outside = [i for i in here if diagram.boxes[i].kind in (BoxKind.INPUT, BoxKind.WEIGHT)]
        if sum(widths[i] + _GAP for i in here) > _WIDEST_ROW and len(outside) > 1:
            pushed = outside[1::2]
        narrow.append([i for i in here if i not in pushed])
    if pushed:
        narrow.append(pushed)
    return narrow[::-1]


def _columns(diagram: Diagram, rows: Sequence[list[int]], widths: Sequence[float]) -> list[float]:
    """Centres: rows are sorted by, then pulled to, the mean of their neighbours."""
    columns = [0.0] * len(diagram.boxes)
    neighbours: Mapping[int, list[int]] = {i: [] for i in range(len(columns))}
    for source, target in diagram.lines:
        neighbours[source].append(target)
        neighbours[target].append(source)
    for row in rows:
        _spread(row, columns, widths)
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {i: _mean([columns[j] for j in neighbours[i]], columns[i]) for i in row}
            row.sort(key=wanted.__getitem__)
            for index in row:
                columns[index] = wanted[index]
            _spread(row, columns, widths)
    return columns


def _spread(row: Sequence[int], columns: list[float], widths: Sequence[float]) -> None:
    """Moves boxes of a row apart until none overlap, around the centre that they want."""
    wanted = _mean([columns[index] for index in row], 0.0)
    for left, right in itertools.pairwise(row):
        least = columns[left] + (widths[left] + widths[right]) / 2 + _GAP
        columns[right] = max(columns[right], least)
    shift = wanted - _mean([columns[index] for index in row], 0.0)
    for index in row:
        columns[index] += shift


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _tops(rows: Sequence[list[int]], heights: Sequence[float]) -> tuple[list[float], float]:
    """The middle of every row, and the height of all."""
    middles, top = [], 0.0
    for row in rows:
        tallest = max(heights[index] for index in row)
        middles.append(top + tallest / 2)
        top += tallest + _ROW_GAP
    return middles, max(0.0, top - _ROW_GAP)


def _size(box: Box) -> tuple[float, float]:
    longest = max(len(line) for line in (box.label, *box.details))
    return longest * _CHARACTER + 2 * _PADDING, (1 + len(box.details)) * _LINE_HEIGHT + _PADDING
