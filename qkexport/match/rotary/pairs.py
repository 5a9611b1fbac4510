"""Rotary embedding written out: the sums of `channels` that are rotations of pairs.

    y[c] = cos[c] * x[c] -+ sin[c] * x[partner(c)]       on the first R channels
    y[c] = x[c]                                          on the rest

    half           partner(c) = c + R/2 or c - R/2
    interleaved    partner(c) = c + 1 or c - 1
    matrices       [[cos, -sin], [sin, cos]] @ (x[2i], x[2i + 1]), written as products and sums

The first of a pair takes minus; where a graph has it the other way round, sin is negated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.arrange import first
from qkexport.match.facts import Facts, View, is_op, producer
from qkexport.match.layout import (
    BATCH,
    CHANNEL,
    HEAD,
    ROW,
    Factor,
    Layout,
    are_whole,
    axis,
    extent,
    joined,
    labels,
)
from qkexport.match.moves import step_back
from qkexport.match.rotary.cells import (
    Cell,
    Cells,
    NotLinearError,
    Term,
    channel_axes,
    channel_dims,
)
from qkexport.match.rotary.channels import LINEAR, Channels
from qkexport.match.rotary.rotation import Rotation, arranged_cache
from qkexport.match.sizes import ONE, Size
from qkexport.match.types import recipe_types

_MAX_REGION: Final = 64  # values between a rotation's result and its source; the longest seen is 24


_LAST: Final = ("Add", "Sub", "Concat", "ScatterND", "ReduceSum")
_ONE_OPERAND: Final = ("Slice", "Split", "Gather", "Reshape", "RotaryEmbedding", "Squeeze")


@dataclasses.dataclass(frozen=True)
class _Angle:
    """Angles from one tensor, one column a channel or one a pair.

    Attributes:
        index: Which of `Channels.angles`.
        width: Number of columns the tensor must have.
    """

    index: int
    width: int


def written_rotation(facts: Facts, view: View) -> Rotation | None:
    """Tries every value that could be the source, nearest first."""
    if producer(view.value, *_LAST) is None:
        return None
    channels, heads = extent(view.layout, CHANNEL).known, extent(view.layout, HEAD).known
    if channels is None or heads is None:
        return None
    merged = any({HEAD, CHANNEL} <= set(labels(factors)) for factors in view.layout)
    rules = (_rotation_of_heads,) if merged else (_rotation_of, _rotation_by_matrices)
    for source in _candidates(facts, view.value):
        for rule in rules:
            try:
                rotation = rule(facts, view, source)
            except NotLinearError:
                continue
            if rotation is not None:
                return rotation
    return None


def _rotation_of_heads(facts: Facts, view: View, source: ir.Value) -> Rotation | None:
    """Rotation before heads are split, [b, s, h*d]: angles may differ by head."""
    heads, width = extent(view.layout, HEAD).count, extent(view.layout, CHANNEL).count
    whole = View(view.value, _heads_as_channels(view.layout, width))
    channels = Channels(facts, source)
    cells = _in_channel_order(channels.cells(whole), whole.layout)
    layout = channels.source_layout
    if layout is None or not _same_but_channels(layout, whole.layout, heads * width):
        return None
    turn = _turn_by_head(cells, heads, width)
    if turn is None:
        return None
    interleaved, sign, cos, sin = turn
    caches = [_cache(facts, channels.angles[angle.index], view) for angle in (cos, sin)]
    if cos.width != sin.width or caches[0] is None or caches[1] is None:
        return None
    if any(extent(channels.angles[a.index].layout, CHANNEL).known != a.width for a in (cos, sin)):
        return None
    split = [
        _by_head(facts, cache, heads, cos.width // heads) for cache in caches if cache is not None
    ]
    if split[0] is None or split[1] is None:
        return None
    before = View(source, _channels_as_heads(_numbered(layout), heads, width))
    turned = split[1] if sign > 0 else r.negative(split[1])
    return Rotation(before, split[0], turned, width, interleaved, rank=4)


def _heads_as_channels(layout: Layout, width: int) -> Layout:
    def merged(factor: Factor) -> Factor:
        if factor.label != HEAD:
            return factor
        return Factor(CHANNEL, factor.size, factor.stride * Size(width))

    return tuple(joined(map(merged, factors)) for factors in layout)


def _channels_as_heads(layout: Layout, heads: int, width: int) -> Layout:
    """The inverse, where all channels lie on one axis in order."""
    both = (*axis(HEAD, Size(heads)), *axis(CHANNEL, Size(width)))
    whole = (Factor(CHANNEL, Size(heads * width)),)
    if whole not in layout:
        raise NotLinearError
    return tuple(both if factors == whole else factors for factors in layout)


def _turn_by_head(
    cells: Sequence[Cell], heads: int, width: int
) -> tuple[bool, int, _Angle, _Angle] | None:
    """(interleaved, sign, cos, sin) where every head turns by columns of its own."""
    for interleaved in (False, True):
        parts = [
            _parts(_shifted(cells[h * width + c], h * width), c, width, interleaved)
            for h in range(heads)
            for c in range(width)
        ]
        found = [part for part in parts if part is not None]
        signs = {sign for _, _, sign in found}
        if len(found) != len(parts) or len(signs) != 1:
            continue
        cos = _angle_by_head([cos for cos, _, _ in found], heads, width, interleaved)
        sin = _angle_by_head([sin for _, sin, _ in found], heads, width, interleaved)
        if cos is not None and sin is not None:
            return interleaved, signs.pop(), cos, sin
    return None


def _shifted(cell: Cell, offset: int) -> Cell:
    return tuple(dataclasses.replace(term, channel=term.channel - offset) for term in cell)


def _angle_by_head(
    found: Sequence[tuple[int, int]], heads: int, width: int, interleaved: bool
) -> _Angle | None:
    if len({index for index, _ in found}) != 1:
        return None
    columns = [column for _, column in found]
    half = width // 2
    paired = [c // 2 if interleaved else c % half for c in range(width)]
    if columns == list(range(heads * width)):
        return _Angle(found[0][0], heads * width)
    by_head = [h * half + c for h in range(heads) for c in paired]
    return _Angle(found[0][0], heads * half) if columns == by_head else None


def _by_head(facts: Facts, cache: r.Recipe, heads: int, width: int) -> r.Recipe | None:
    """[b, s, h*w] as [b, h, s, w]."""
    if len(recipe_types(facts, cache, {}).sizes) != 3:
        return None
    return r.transpose(r.reshape(cache, [0, 0, heads, width]), [0, 2, 1, 3])


def _candidates(facts: Facts, value: ir.Value) -> list[ir.Value]:
    """Values that more than one branch of the linear region before `value` starts from."""
    uses: dict[ir.Value, int] = {}
    pending, seen = [value], {value}
    while pending and len(seen) < _MAX_REGION:
        node = pending.pop().producer()
        if node is None or not is_op(node, *LINEAR):
            continue
        for item in _data_inputs(node):
            uses[item] = uses.get(item, 0) + (2 if _repeats(facts, node, item) else 1)
            if item not in seen:
                seen.add(item)
                pending.append(item)
    shared = [item for item, count in uses.items() if count > 1]
    return sorted(shared, key=lambda item: -_position(facts, item))


def _repeats(facts: Facts, node: ir.Node, item: ir.Value) -> bool:
    """Whether one operator uses an input more than once."""
    if node.op_type == "Mul":
        return not facts.same_sizes(item, node.outputs[0])
    return node.op_type == "Split"


def _data_inputs(node: ir.Node) -> Iterator[ir.Value]:
    count = 1 if node.op_type in _ONE_OPERAND else None
    for item in node.inputs[:count]:
        if item is not None and item.const_value is None:
            yield item


def _position(facts: Facts, value: ir.Value) -> int:
    node = value.producer()
    return -1 if node is None else facts.order[node]


def _rotation_by_matrices(facts: Facts, view: View, source: ir.Value) -> Rotation | None:
    return _rotation_of(facts, view, source, takes_angles_apart=True)


def _rotation_of(
    facts: Facts, view: View, source: ir.Value, *, takes_angles_apart: bool = False
) -> Rotation | None:
    channels = Channels(facts, source, takes_angles_apart=takes_angles_apart)
    cells = _in_channel_order(channels.cells(view), view.layout)
    layout = channels.source_layout
    if layout is None or not _same_but_channels(layout, view.layout, len(cells)):
        return None
    turn = _turn(cells)
    if turn is None:
        return None
    rotary_dim, interleaved, sign, cos, sin = turn
    recipes = [_cache(facts, channels.angles[angle.index], view) for angle in (cos, sin)]
    if recipes[0] is None or recipes[1] is None:
        return None
    widths = [extent(channels.angles[angle.index].layout, CHANNEL).known for angle in (cos, sin)]
    if widths != [cos.width, sin.width] or cos.width != sin.width:
        return None
    sin_recipe = recipes[1] if sign > 0 else r.negative(recipes[1])
    before = View(source, _numbered(layout))
    rank = len(recipe_types(facts, recipes[0], {}).sizes)
    return Rotation(before, recipes[0], sin_recipe, rotary_dim, interleaved, rank=rank)


def _in_channel_order(cells: Cells, layout: Layout) -> list[Cell]:
    """The cells by logical channel, whatever axes the channels are spread over."""
    digits = [factor for i in channel_axes(layout) for factor in layout[i]]
    split = cells.reshape([factor.size.count for factor in digits])
    order = sorted(range(len(digits)), key=lambda i: -digits[i].stride.count)
    return list(split.transpose(order).reshape(-1))


def _same_but_channels(source: Layout, result: Layout, count: int) -> bool:
    def rest(layout: Layout) -> list[tuple[str, Size, Size]]:
        digits = [factor for factors in layout for factor in factors if factor.label != CHANNEL]
        return sorted(((f.label, f.size, f.stride) for f in digits), key=str)

    return rest(source) == rest(result) and int(np.prod(channel_dims(source))) == count


def _numbered(layout: Layout) -> Layout:
    """The layout with channels counted row-major, which is how the cells counted them."""
    stride, axes = ONE, list(layout)
    for place in reversed(channel_axes(layout)):
        factor = axes[place][0]
        size = Size(int(np.prod([f.size.count for f in axes[place]])))
        axes[place] = (dataclasses.replace(factor, size=size, stride=stride),)
        stride = stride * size
    return tuple(axes)


def _turn(cells: Sequence[Cell]) -> tuple[int, bool, int, _Angle, _Angle] | None:
    """(R, interleaved, sign of sin, cos, sin) of cells that are a rotation."""
    turning = [len(cell) > 1 for cell in cells]
    rotary_dim = sum(turning)
    if rotary_dim < 2 or rotary_dim % 2 or not all(turning[:rotary_dim]):
        return None
    if any(cell != (Term(c),) for c, cell in enumerate(cells) if c >= rotary_dim):
        return None
    for interleaved in (False, True):
        parts = [
            _parts(cell, c, rotary_dim, interleaved) for c, cell in enumerate(cells[:rotary_dim])
        ]
        found = [part for part in parts if part is not None]
        signs = {sign for _, _, sign in found}
        if len(found) != len(parts) or len(signs) != 1:
            continue
        cos = _angle([cos for cos, _, _ in found], rotary_dim, interleaved)
        sin = _angle([sin for _, sin, _ in found], rotary_dim, interleaved)
        if cos is not None and sin is not None:
            return rotary_dim, interleaved, signs.pop(), cos, sin
    return None


def _parts(
    cell: Cell, channel: int, rotary_dim: int, interleaved: bool
) -> tuple[tuple[int, int], tuple[int, int], int] | None:
    """(cos, sin, sign) of one channel; sign is +1 where it is the operator's own."""
    half = rotary_dim // 2
    first = channel % 2 == 0 if interleaved else channel < half
    step = 1 if interleaved else half
    partner = channel + step if first else channel - step
    terms = {term.channel: term for term in cell}
    if len(cell) != 2 or set(terms) != {channel, partner}:
        return None
    own, other = terms[channel], terms[partner]
    if own.number != 1.0 or abs(other.number) != 1.0:
        return None
    if len(own.angles) != 1 or len(other.angles) != 1:
        return None
    return own.angles[0], other.angles[0], int(other.number) * (-1 if first else 1)


def _angle(found: Sequence[tuple[int, int]], rotary_dim: int, interleaved: bool) -> _Angle | None:
    if len({index for index, _ in found}) != 1:
        return None
    columns = [column for _, column in found]
    half = rotary_dim // 2
    if columns == list(range(rotary_dim)):
        return _Angle(found[0][0], rotary_dim)
    paired = [c // 2 if interleaved else c % half for c in range(rotary_dim)]
    return _Angle(found[0][0], half) if columns == paired else None


def _cache(facts: Facts, angle: View, result: View) -> r.Recipe | None:
    """The angles as a cache, from before they were unsqueezed to broadcast where that suffices."""
    views = [angle]
    while (move := step_back(facts, views[-1])) is not None and not move.copied:
        views.append(move.view)
    one_row = extent(result.layout, ROW) == ONE
    if not are_whole(angle.layout, result.layout, (BATCH, HEAD, ROW)):
        return None
    return first(
        arranged_cache(r.Source(view.value), view.layout, one_row=one_row) for view in views
    )
