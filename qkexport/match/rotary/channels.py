"""What each channel of a value is, as a sum of signed, weighted channels of another value.

Rotary embeddings are written in dozens of ways: slices and concatenations, strided halves,
stacks, splits, scatters. All of them are linear in the rotated tensor and act on its channels
alone. So instead of listing spellings, the arithmetic is carried out on symbols: every channel of
a value becomes a sum of terms `number * angle[...] * source[channel]`, and what the sum is decides
whether it is a rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qkexport.match.factors import aligned_layout
from qkexport.match.facts import Facts, View, integer, is_op
from qkexport.match.layout import CHANNEL, Factor, Layout, axis_size, labels
from qkexport.match.moves import cast_back, step_back
from qkexport.match.rotary.cells import (
    UNDEFINED,
    Cells,
    NotLinearError,
    Term,
    channel_axes,
    channel_dims,
    channel_index,
    counted_in_order,
    elementwise,
    scaled,
    times,
    with_angle,
    with_axis,
    with_channels,
    with_factor,
)
from qkexport.match.shapes import node_axes, slice_ranges
from qkexport.match.sizes import Size

LINEAR: Final = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Neg", "Concat", "Slice", "Split", "Gather", "Cast", "Identity",
        "ReduceSum", "Reshape", "RotaryEmbedding", "ScatterND", "Transpose", "Squeeze", "Unsqueeze",
    }
)  # fmt: skip


class Channels:
    """Evaluates values as functions of the channels of one source.

    Args:
        facts: The graph.
        source: The value whose channels are the unknowns; None: there is none.
        takes_angles_apart: Follow run-time factors back to the tensors they were joined from.
    """

    def __init__(
        self, facts: Facts, source: ir.Value | None, *, takes_angles_apart: bool = False
    ) -> None:
        self._facts = facts
        self._source = source
        self._touches: dict[ir.Value, bool] = {} if source is None else {source: True}
        self._takes_angles_apart = takes_angles_apart
        self.source_layout: Layout | None = None
        self.angles: list[View] = []

    def cells(self, view: View) -> Cells:
        """The channels of a view, one array axis for each axis that holds channels.

        Raises:
            NotLinearError: Some operator in between is not understood.
        """
        if view.value is self._source:
            return self._identity(view.layout)
        node = view.value.producer()
        if node is None or not is_op(node, *LINEAR) or not self.touches(view.value):
            raise NotLinearError
        before = cast_back(self._facts, view)
        if before is not None:
            return self.cells(before)
        return _RULES.get(node.op_type, Channels._move)(self, node, view)

    def touches(self, value: ir.Value | None) -> bool:
        """Whether a value depends on the source through linear operators."""
        if value is None:
            return False
        if value not in self._touches:
            self._touches[value] = False
            node = value.producer()
            if node is not None and is_op(node, *LINEAR):
                self._touches[value] = any(self.touches(item) for item in node.inputs)
        return self._touches[value]

    def _identity(self, layout: Layout) -> Cells:
        layout = counted_in_order(layout)
        if self.source_layout not in (None, layout):
            raise NotLinearError
        self.source_layout = layout
        dims = channel_dims(layout)
        cells = np.empty(int(np.prod(dims)), object)
        cells[:] = [(Term(channel),) for channel in range(cells.size)]
        return cells.reshape(dims)

    def _move(self, node: ir.Node, view: View) -> Cells:
        move = step_back(self._facts, view)
        if move is None or move.copied:
            raise NotLinearError
        cells = self.cells(move.view)
        if node.op_type == "Transpose":
            before = channel_axes(move.view.layout)
            perm = node.attributes["perm"].as_ints()
            return cells.transpose([before.index(i) for i in perm if i in before])
        return cells.reshape(channel_dims(view.layout))  # row-major order is kept

    def _sum(self, node: ir.Node, view: View) -> Cells:
        parts = [self.cells(View(value, view.layout)) for value in self._operands(node, view)]
        if node.op_type == "Sub":
            parts[1] = scaled(parts[1], -1.0)
        return elementwise(lambda a, b: a + b, parts[0], parts[1])

    def _negation(self, node: ir.Node, view: View) -> Cells:
        return scaled(self.cells(View(self._operands(node, view)[0], view.layout)), -1.0)

    def _operands(self, node: ir.Node, view: View) -> list[ir.Value]:
        """All inputs, each of the shape of the result."""
        operands = [value for value in node.inputs if value is not None]
        if not all(self._facts.same_sizes(value, view.value) for value in operands):
            raise NotLinearError
        return operands

    def _product(self, node: ir.Node, view: View) -> Cells:
        left, right = node.inputs
        if node.op_type == "Div" or self.touches(left):
            source, other = left, right
        else:
            source, other = right, left
        if source is None or other is None or self.touches(other):
            raise NotLinearError
        cells = self._spread(source, view)
        layout = aligned_layout(self._facts, other, view.layout)
        if layout is None:
            raise NotLinearError
        full = ((),) * (view.rank - len(layout)) + layout
        numbers = self._numbers(other, full, view.layout)
        if numbers is not None:
            numbers = 1 / numbers if node.op_type == "Div" else numbers
            return elementwise(times, cells, np.broadcast_to(numbers, cells.shape))
        if node.op_type == "Div":
            raise NotLinearError
        return self._weighted(cells, View(other, layout), full, view.layout)

    def _spread(self, source: ir.Value, view: View) -> Cells:
        """The channels of an operand, repeated over axes of channels that it lacks."""
        if self._facts.same_sizes(source, view.value):
            return self.cells(View(source, view.layout))
        layout = aligned_layout(self._facts, source, view.layout)
        if layout is None or len(layout) != view.rank:
            raise NotLinearError
        axes = channel_axes(view.layout)
        if any(layout[i] != view.layout[i] for i in range(view.rank) if i not in axes):
            raise NotLinearError
        cells = self.cells(View(source, layout))
        dims = [axis_size(layout[i]).count for i in axes]
        return np.broadcast_to(cells.reshape(dims), channel_dims(view.layout))

    def _numbers(self, value: ir.Value, full: Layout, layout: Layout) -> Cells | None:
        """A constant that depends on the channel alone, shaped to broadcast against cells."""
        array = self._facts.constants.array(value)
        axes = channel_axes(layout)
        if array is None or any(f for i, f in enumerate(full) if i not in axes):
            return None
        shape = [int(axis_size(full[i]).count) for i in axes]
        return array.astype(np.float64).reshape(shape)

    def _weighted(self, cells: Cells, angle: View, full: Layout, layout: Layout) -> Cells:
        dims = [axis_size(full[i]).known or 0 for i in channel_axes(layout)]
        if self._takes_angles_apart:
            factors = _Angles(self._facts, self).cells(angle).reshape(dims)
            return elementwise(with_factor, cells, np.broadcast_to(factors, cells.shape))
        index = self._angle(angle)
        channels = np.arange(int(np.prod(dims))).reshape(dims)
        spread = np.broadcast_to(channels, cells.shape)
        return elementwise(lambda cell, c: with_angle(cell, index, int(c)), cells, spread)

    def _angle(self, view: View) -> int:
        if view not in self.angles:
            self.angles.append(view)
        return self.angles.index(view)

    def _concat(self, node: ir.Node, view: View) -> Cells:
        place = integer(node, "axis", 0) % view.rank
        if set(labels(view.layout[place])) != {CHANNEL}:
            raise NotLinearError
        parts = []
        for value in node.inputs:
            sizes = None if value is None else self._facts.sizes(value)
            if value is None or sizes is None or sizes[place].known is None:
                raise NotLinearError
            layout = with_channels(view.layout, place, sizes[place].count)
            cells = self.cells(View(value, layout))
            parts.append(with_axis(cells, layout, place))
        joined = np.concatenate(parts, channel_index(view.layout, place))
        return joined.reshape(channel_dims(view.layout))

    def _slice(self, node: ir.Node, view: View) -> Cells:
        source = node.inputs[0]
        sizes = None if source is None else self._facts.sizes(source)
        cuts = None if sizes is None else slice_ranges(self._facts.shapes, node, sizes)
        if source is None or sizes is None or cuts is None or len(cuts) != 1:
            raise NotLinearError
        ((place, rows),) = cuts.items()
        return self._taken(view, source, place, sizes[place], np.asarray(rows))

    def _split(self, node: ir.Node, view: View) -> Cells:
        source = node.inputs[0]
        sizes = None if source is None else self._facts.sizes(source)
        if source is None or sizes is None:
            raise NotLinearError
        place = integer(node, "axis", 0) % view.rank
        parts = [self._facts.sizes(value) for value in node.outputs]
        lengths = [None if part is None else part[place].known for part in parts]
        if any(length is None for length in lengths):
            raise NotLinearError
        index = node.outputs.index(view.value)
        start = sum(length or 0 for length in lengths[:index])
        rows = np.arange(start, start + (lengths[index] or 0))
        return self._taken(view, source, place, sizes[place], rows)

    def _gather(self, node: ir.Node, view: View) -> Cells:
        source = node.inputs[0]
        rows = self._facts.constants.array(node.inputs[1])
        sizes = None if source is None else self._facts.sizes(source)
        if source is None or sizes is None or rows is None or rows.ndim > 1:
            raise NotLinearError
        place = integer(node, "axis", 0) % len(sizes)
        layout = view.layout
        if rows.ndim == 0:
            layout = (*layout[:place], (), *layout[place:])
        taken = View(view.value, layout)
        cells = self._taken(taken, source, place, sizes[place], rows.reshape(-1))
        return cells.reshape(channel_dims(view.layout))

    def _scatter(self, node: ir.Node, view: View) -> Cells:
        """Channels on the first axis, written over those of the data."""
        data, indices, updates = node.inputs[:3]
        rows = self._facts.constants.array(indices)
        reduction = node.attributes.get("reduction")
        if data is None or updates is None or rows is None or rows.ndim != 2:
            raise NotLinearError
        if (reduction is not None and reduction.as_string() != "none") or rows.shape[1] != 1:
            raise NotLinearError
        sizes = self._facts.sizes(updates)
        if set(labels(view.layout[0])) != {CHANNEL} or sizes is None or sizes[0].known is None:
            raise NotLinearError
        if self.touches(data):
            cells = self.cells(View(data, view.layout)).copy()
        else:
            cells = np.empty(channel_dims(view.layout), object)
            cells[...] = (Term(UNDEFINED),)  # whatever it is, it must be written over
        layout = with_channels(view.layout, 0, sizes[0].count)
        cells[rows.reshape(-1)] = with_axis(self.cells(View(updates, layout)), layout, 0)
        return cells

    def _reduced(self, node: ir.Node, view: View) -> Cells:
        """The sum over one axis of channels, as products with small matrices are written."""
        source = node.inputs[0]
        sizes = None if source is None else self._facts.sizes(source)
        axes = node_axes(self._facts.constants, node)
        if source is None or sizes is None or axes is None or len(axes) != 1:
            raise NotLinearError
        place = axes[0] % len(sizes)
        count = sizes[place].known
        kept = bool(integer(node, "keepdims", 1))
        if count is None or (kept and view.layout[place]):
            raise NotLinearError
        rest = view.layout[place + 1 :] if kept else view.layout[place:]
        layout = with_channels((*view.layout[:place], (), *rest), place, count)
        cells = with_axis(self.cells(View(source, layout)), layout, place)
        along = channel_index(layout, place)
        total = np.take(cells, 0, along)
        for i in range(1, count):
            total = elementwise(lambda a, b: a + b, total, np.take(cells, i, along))
        result: Cells = total.reshape(channel_dims(view.layout))
        return result

    def _rotary(self, node: ir.Node, view: View) -> Cells:
        """The operator on [b, h, s, d], with caches [b, s, r/2], on some channels of a head."""
        source, cos, sin = node.inputs[:3]
        positions = node.inputs[3] if len(node.inputs) > 3 else None
        if source is None or cos is None or sin is None or positions is not None:
            raise NotLinearError
        cells = self.cells(View(source, view.layout))
        width = integer(node, "rotary_embedding_dim", 0) or cells.size
        turned = view.rank == 4 and channel_axes(view.layout) == [3]
        if not turned or self._facts.shapes.rank(cos) != 3 or width % 2 or width > cells.size:
            raise NotLinearError
        axes = (view.layout[0], view.layout[2], (Factor(CHANNEL, Size(width // 2)),))
        c, s = (self._angle(View(value, axes)) for value in (cos, sin))
        result = cells.copy()
        for i in range(width // 2):
            pair = (2 * i, 2 * i + 1) if integer(node, "interleaved", 0) else (i, i + width // 2)
            first, second = cells[pair[0]], cells[pair[1]]
            result[pair[0]] = with_angle(first, c, i) + times(with_angle(second, s, i), -1.0)
            result[pair[1]] = with_angle(second, c, i) + with_angle(first, s, i)
        return result

    def _taken(
        self, view: View, source: ir.Value, place: int, size: Size, rows: npt.NDArray[Any]
    ) -> Cells:
        """Some channels of an axis; an axis that is cut must be one of channels."""
        if size.known is None or set(labels(view.layout[place])) - {CHANNEL}:
            raise NotLinearError
        layout = with_channels(view.layout, place, size.known)
        before = View(source, layout)
        if not self._facts.fits(before):
            raise NotLinearError
        cells = with_axis(self.cells(before), layout, place)
        taken = np.take(cells, rows, channel_index(layout, place))
        return taken.reshape(channel_dims(view.layout))


Handler: TypeAlias = Callable[[Channels, ir.Node, View], Cells]
_RULES: Final[dict[str, Handler]] = {
    "Add": Channels._sum,
    "Sub": Channels._sum,
    "Neg": Channels._negation,
    "Mul": Channels._product,
    "Div": Channels._product,
    "Concat": Channels._concat,
    "Slice": Channels._slice,
    "Split": Channels._split,
    "Gather": Channels._gather,
    "RotaryEmbedding": Channels._rotary,
    "ScatterND": Channels._scatter,
    "ReduceSum": Channels._reduced,
}

# What joins and moves angles without changing them, up to constant factors.
_JOINS: Final = ("Cast", "Concat", "Gather", "Identity", "Mul", "Neg", "Reshape", "Squeeze",
                 "Transpose", "Unsqueeze")  # fmt: skip


class _Angles(Channels):
    """Run-time factors as signed channels of the tensors they were joined from.

    Args:
        facts: The graph.
        owner: Whose list of angles they are entered in.
    """

    def __init__(self, facts: Facts, owner: Channels) -> None:
        super().__init__(facts, None)
        self.angles = owner.angles

    def touches(self, value: ir.Value | None) -> bool:
        return value is not None and self._facts.constants.array(value) is None

    def cells(self, view: View) -> Cells:
        if is_op(view.value.producer(), *_JOINS):
            try:
                return super().cells(view)
            except NotLinearError:
                pass  # made here, so far as anyone can tell
        dims = channel_dims(view.layout)
        index = self._angle(view)
        cells = np.empty(int(np.prod(dims)), object)
        cells[:] = [(Term(UNDEFINED, 1.0, ((index, c),)),) for c in range(cells.size)]
        return cells.reshape(dims)
