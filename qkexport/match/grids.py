"""Tensors of row or column numbers, and masks that compare them.

    arange(n)[:, None] + past        row numbers, an offset from the first row
    column <= row,  column > row - window,  tril(ones)

A comparison of numbers is a bound on `column - row`, whatever axes and names it was written with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

import onnx_ir as ir

from qkexport.match.affine import Affine
from qkexport.match.factors import aligned_layout
from qkexport.match.facts import Facts, View, integer, producer
from qkexport.match.fills import all_ones
from qkexport.match.layout import BATCH, COLUMN, ROW, Layout, labels
from qkexport.match.moves import step_back, whole_step_back
from qkexport.match.offsets import Offset
from qkexport.match.sizes import ONE

_INTEGERS: Final = (ir.DataType.INT64, ir.DataType.INT32)


@dataclasses.dataclass(frozen=True)
class Grid:
    """offset + index along an axis; the axis is None where there is one row or column."""

    label: str | None
    offset: Offset


@dataclasses.dataclass(frozen=True)
class Bound:
    """column - row <= limit, or column - row >= limit."""

    is_upper: bool
    limit: Offset

    def negated(self) -> Bound:
        return Bound(not self.is_upper, self.limit.plus(Offset(1 if self.is_upper else -1)))


def find_grid(facts: Facts, view: View) -> Grid | None:
    """What numbers an integer tensor holds."""
    element = facts.elements.of(view.value)
    if isinstance(element, Affine):
        return _along_one_axis(element, view.layout)
    node = view.value.producer()
    move = whole_step_back(facts, view)
    if node is None:
        return None
    if move is not None:
        return find_grid(facts, move.view)
    if producer(view.value, "Cast") is not None and node.inputs[0] is not None:
        source = node.inputs[0]
        same = facts.dtype(source) in _INTEGERS and facts.dtype(view.value) in _INTEGERS
        return find_grid(facts, View(source, view.layout)) if same else None
    if producer(view.value, "Add", "Sub") is not None:
        return _shifted(facts, view, node)
    return None


def _along_one_axis(element: Affine, layout: Layout) -> Grid | None:
    """The grid of known elements that count up along the rows or the columns, or not at all."""
    if len(element.slopes) != len(layout):
        return None
    axes = [i for i, slope in enumerate(element.slopes) if slope]
    if not axes:
        return Grid(None, element.offset)
    names = labels(layout[axes[0]])
    if len(axes) > 1 or element.slopes[axes[0]] != 1 or names not in ((ROW,), (COLUMN,)):
        return None
    return Grid(names[0], element.offset) if layout[axes[0]][0].stride == ONE else None


def _shifted(facts: Facts, view: View, node: ir.Node) -> Grid | None:
    """Numbers moved by one that is known, or by one for each batch entry."""
    times = -1 if node.op_type == "Sub" else 1
    pairs = [(node.inputs[0], node.inputs[1])]
    if times == 1:
        pairs.append((node.inputs[1], node.inputs[0]))
    for source, other in pairs:
        layout = None if source is None else aligned_layout(facts, source, view.layout)
        if other is None or source is None or layout is None:
            continue
        number = facts.elements.scalar(other) or _by_batch(facts, other, view.layout)
        if number is None:
            continue
        grid = find_grid(facts, View(source, layout))
        return None if grid is None else Grid(grid.label, grid.offset.plus(number, times))
    return None


def vector_offset(facts: Facts, value: ir.Value) -> Offset:
    """Numbers by batch entry, [B]; sums and differences with sizes are taken apart."""
    node = producer(value, "Add", "Sub")
    if node is not None and node.inputs[0] is not None and node.inputs[1] is not None:
        number = facts.elements.scalar(node.inputs[1])
        if number is not None:
            times = 1 if node.op_type == "Add" else -1
            return vector_offset(facts, node.inputs[0]).plus(number, times)
    return Offset(0, frozenset({((f"@{value.name or id(value)}",), 1)}))


def _by_batch(facts: Facts, value: ir.Value, layout: Layout) -> Offset | None:
    """Numbers that differ from one batch entry to the next, and in nothing else."""
    own = aligned_layout(facts, value, layout)
    view = None if own is None else View(value, own)
    while view is not None and view.rank != 1:
        move = step_back(facts, view)
        view = None if move is None or move.copied else move.view
    if view is None or facts.dtype(view.value) not in _INTEGERS:
        return None
    return vector_offset(facts, view.value) if labels(view.layout[0]) == (BATCH,) else None


_Compare: TypeAlias = Callable[[Offset], Bound]
_COMPARISONS: Final[dict[str, tuple[bool, int]]] = {
    # name: (left is smaller, how far apart they must be at least)
    "LessOrEqual": (True, 0),
    "Less": (True, 1),
    "GreaterOrEqual": (False, 0),
    "Greater": (False, 1),
}


def find_bound(facts: Facts, view: View, single: Collection[str]) -> Bound | None:
    """The bound on column - row that a bool tensor over rows and columns states.

    Args:
        facts: The graph.
        view: The tensor.
        single: ROW and COLUMN, where the scores have only one. Otherwise an axis that the tensor
            lacks is repeated: `column < 4` says the same of every row, and is no bound.
    """
    node = view.value.producer()
    if node is None or None in node.inputs:
        return None
    if producer(view.value, *_COMPARISONS) is not None:
        return _compared(facts, view, node, single)
    if producer(view.value, "Not") is not None and node.inputs[0] is not None:
        inner = find_bound(facts, View(node.inputs[0], view.layout), single)
        return None if inner is None else inner.negated()
    if producer(view.value, "Equal") is not None and node.inputs[0] is not None:
        if facts.constants.scalar(node.inputs[1]) != 0.0:
            return None
        inner = _triangle(facts, View(node.inputs[0], view.layout))
        return None if inner is None else inner.negated()
    if producer(view.value, "Cast") is not None and node.inputs[0] is not None:
        return _triangle(facts, View(node.inputs[0], view.layout))
    return _triangle(facts, view)


def _compared(facts: Facts, view: View, node: ir.Node, single: Collection[str]) -> Bound | None:
    left, right = (item for item in node.inputs if item is not None)
    grids = []
    for value in (left, right):
        layout = aligned_layout(facts, value, view.layout)
        grid = None if layout is None else find_grid(facts, View(value, layout))
        if grid is None:
            return None
        grids.append(grid)
    smaller_first, apart = _COMPARISONS[node.op_type]
    low, high = grids if smaller_first else grids[::-1]
    # low + apart <= high, that is low.index - high.index <= high.offset - low.offset - apart
    limit = high.offset.plus(low.offset, -1).plus(Offset(-apart))
    if _are(low, high, (COLUMN, ROW), single):
        return Bound(True, limit)
    if _are(low, high, (ROW, COLUMN), single):
        return Bound(False, Offset().plus(limit, -1))
    return None


def _are(low: Grid, high: Grid, axes: tuple[str, str], single: Collection[str]) -> bool:
    """Whether two grids run over these axes; one without an axis must be the other's partner."""

    def fits(grid: Grid, label: str) -> bool:
        return grid.label == label or (grid.label is None and label in single)

    return fits(low, axes[0]) and fits(high, axes[1]) and low.label != high.label


def _triangle(facts: Facts, view: View) -> Bound | None:
    """tril(ones, k) or triu(ones, k), nonzero where the bound holds."""
    node = producer(view.value, "Trilu")
    if node is None or node.inputs[0] is None or view.rank < 2:
        return None
    if [labels(factors) for factors in view.layout[-2:]] != [(ROW,), (COLUMN,)]:
        return None
    shift = facts.constants.scalar(node.inputs[1]) if len(node.inputs) > 1 else 0.0
    if shift is None or not all_ones(facts, node.inputs[0]):
        return None
    return Bound(not integer(node, "upper", 1), Offset(int(shift)))
