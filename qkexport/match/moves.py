"""Operators that move elements without changing them, followed backwards.

Each rule takes a node and the layout of its output and returns the layout of its first input. A
rule that cannot prove its answer returns None, and the walk stops there.

    Reshape     [b, s, h*d] -> [b, s, h, d]       digits regroup, row-major order is kept
    Transpose   [b, s, h, d] -> [b, h, s, d]      axes permute
    Expand      [b, kv, 1, s, d] -> [b, kv, g, s, d]    the digit g leaves: its heads are copies
    Tile        the same, as repeat is written
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

import onnx_ir as ir

from qkexport.match.facts import FLOATS, Facts, View, integer, is_op
from qkexport.match.layout import (
    COLUMN,
    ROW,
    Axis,
    Factor,
    Layout,
    axis_size,
    in_digits,
    joined,
    regroup,
)
from qkexport.match.shapes import Sizes, node_axes
from qkexport.match.sizes import ONE, Size


@dataclasses.dataclass(frozen=True)
class Move:
    """One step back.

    Attributes:
        view: The input, with its layout.
        copied: Digits that the node made by repeating elements; empty for a pure move.
    """

    view: View
    copied: Axis = ()


Rule = Callable[[Facts, ir.Node, Layout], "tuple[Layout, Axis] | None"]


def step_back(facts: Facts, view: View) -> Move | None:
    """The view before the operator that moved it, or None where none did."""
    node = view.value.producer()
    if node is None or not is_op(node, *_RULES) or node.inputs[0] is None:
        return None
    found = _RULES[node.op_type](facts, node, view.layout)
    if found is None:
        return None
    layout, copied = found
    before = View(node.inputs[0], layout)
    return Move(before, copied) if facts.fits(before) else None


def whole_step_back(facts: Facts, view: View) -> Move | None:
    """One step back, or None where a row or column is now only a digit of the one it was."""
    move = step_back(facts, view)
    if move is None or in_digits((*move.view.layout, move.copied), (ROW, COLUMN)):
        return None
    return move


def cast_back(facts: Facts, view: View) -> View | None:
    """The view before a cast between floating types."""
    node = view.value.producer()
    if node is None or not is_op(node, "Cast") or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    target = ir.DataType(integer(node, "to", 0))
    if facts.dtype(source) not in FLOATS or target not in FLOATS:
        return None
    return View(source, view.layout)


def _identity(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    return layout, ()


def _dropout(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is None:
        return layout, ()
    flag = facts.constants.array(training)
    return (layout, ()) if flag is not None and not flag.any() else None


def _transpose(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    perm = node.attributes.get("perm")
    order = list(perm.as_ints()) if perm else list(range(len(layout)))[::-1]
    axes: list[Axis] = [()] * len(layout)
    for place, source in enumerate(order):
        axes[source] = layout[place]
    return tuple(axes), ()


def _reshape(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    before = facts.sizes(node.inputs[0]) if node.inputs[0] is not None else None
    after = facts.sizes(node.outputs[0])
    if before is None or after is None:
        return None
    regrouped = regroup(resized(layout, after), before)
    return None if regrouped is None else (regrouped, ())


def resized(layout: Layout, sizes: Sizes) -> Layout:
    """The layout with the sizes by which this value knows its axes (names differ by branch)."""
    return tuple(
        (Factor(factors[0].label, size, factors[0].stride),)
        if len(factors) == 1 and size not in (ONE, factors[0].size)
        else factors
        for factors, size in zip(layout, sizes, strict=True)
    )


def _unsqueeze(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    axes = node_axes(facts.constants, node)
    if axes is None:
        return None
    places = {i % len(layout) for i in axes}
    return tuple(factors for i, factors in enumerate(layout) if i not in places), ()


def _squeeze(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    axes = node_axes(facts.constants, node)
    if axes is None:
        return None
    rank = len(layout) + len(axes)
    places = {i % rank for i in axes}
    rest = iter(layout)
    return tuple(() if i in places else next(rest) for i in range(rank)), ()


def _expand(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    before = facts.sizes(node.inputs[0]) if node.inputs[0] is not None else None
    after = facts.sizes(node.outputs[0])
    if before is None or after is None:
        return None
    copied: list[Factor] = []
    added = len(after) - len(before)
    axes: list[Axis] = []
    for place, (factors, size) in enumerate(zip(layout, after, strict=True)):
        if place < added:
            copied.extend(factors)
        elif before[place - added] == size:
            axes.append(factors)
        elif before[place - added] == ONE:
            copied.extend(factors)
            axes.append(())
        else:
            return None
    return tuple(axes), tuple(copied)


def _tile(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    """Each axis repeats as a whole: the coarse digit is which repetition."""
    before = facts.sizes(node.inputs[0]) if node.inputs[0] is not None else None
    repeats = facts.constants.integers(node.inputs[1])
    if before is None or repeats is None or len(repeats) != len(layout):
        return None
    copied: list[Factor] = []
    axes: list[Axis] = []
    for factors, size, times in zip(layout, before, repeats, strict=True):
        parts = ((), factors) if times == 1 else _digits(factors, Size(times), size)
        if parts is None:
            return None
        copied.extend(parts[0])
        axes.append(parts[1])
    return tuple(axes), tuple(copied)


def _gather(facts: Facts, node: ir.Node, layout: Layout) -> tuple[Layout, Axis] | None:
    """repeat_interleave by index: every row of the axis is taken the same number of times."""
    before = facts.sizes(node.inputs[0]) if node.inputs[0] is not None else None
    array = facts.constants.array(node.inputs[1])
    if before is None or array is None or array.ndim != 1:
        return None
    place = integer(node, "axis", 0) % len(layout)
    rows = before[place].known
    if rows is None or not rows or array.size % rows:
        return None
    times = array.size // rows
    if [int(i) for i in array] != [row for row in range(rows) for _ in range(times)]:
        return None
    parts = _digits(layout[place], Size(rows), Size(times))
    if parts is None:
        return None
    kept, copied = parts
    return (*layout[:place], kept, *layout[place + 1 :]), copied


def _digits(factors: Axis, major: Size, minor: Size) -> tuple[Axis, Axis] | None:
    if axis_size(factors) != major * minor:
        return None
    groups = regroup((factors,), (major, minor))
    return None if groups is None else (joined(groups[0]), joined(groups[1]))


_RULES: Final[dict[str, Rule]] = {
    "Identity": _identity,
    "Dropout": _dropout,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Expand": _expand,
    "Tile": _tile,
    "Gather": _gather,
}
