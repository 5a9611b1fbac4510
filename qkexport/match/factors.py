"""Gains, scales, temperatures and biases that stand between a norm and the scores.

Mul(x, w)   w [D], [H,D], [H,1,D], [1,1,1,D], [H*D], a number, or one value a token
Div(x, c)   by a constant
Add(x, b)   a bias, shaped as a gain
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.facts import Facts, View, producer
from qkexport.match.layout import CHANNEL, HEAD, Factor, Layout, axis_size, extent, labels
from qkexport.match.norms.norm import PerHead
from qkexport.match.sizes import ONE, Size, product


@dataclasses.dataclass(frozen=True)
class ChannelFactor:
    """Multiplies by, or adds, one value a head, a channel, both or neither.

    Attributes:
        values: Recipe of shape [1 or H, 1 or D].
        per_head: Varies by head.
        per_channel: Varies by channel.
    """

    values: r.Recipe
    per_head: bool
    per_channel: bool

    @property
    def number(self) -> float | None:
        """The value where it is one constant."""
        if isinstance(self.values, r.Constant) and self.values.array.size == 1:
            return float(self.values.array.astype(np.float64).reshape(()))
        return None


@dataclasses.dataclass(frozen=True)
class TokenFactor:
    """Multiplies by a value that depends on the token, and on the head at most besides."""

    view: View


@dataclasses.dataclass(frozen=True)
class Scaling:
    """x = source * factor or source + factor."""

    source: View
    factor: ChannelFactor | TokenFactor
    adds: bool = False


def find_scaling(facts: Facts, view: View) -> Scaling | None:
    """The multiplication or addition whose result a view is."""
    node = producer(view.value, "Mul", "Div", "Add")
    if node is None or None in node.inputs:
        return None
    left, right = (item for item in node.inputs if item is not None)
    if node.op_type == "Div":
        number = facts.constants.scalar(right)
        if not number or not facts.same_sizes(left, view.value):
            return None
        inverse = ChannelFactor(r.floats([[1.0 / number]]), per_head=False, per_channel=False)
        return Scaling(View(left, view.layout), inverse)
    for source, other in ((left, right), (right, left)):
        factor = _factor(facts, other, view)
        if factor is None or not facts.same_sizes(source, view.value):
            continue
        adds = node.op_type == "Add"
        if isinstance(factor, TokenFactor) and adds:
            return None
        return Scaling(View(source, view.layout), factor, adds)
    return None


def _factor(facts: Facts, value: ir.Value, view: View) -> ChannelFactor | TokenFactor | None:
    channel = channel_factor(facts, value, view.layout)
    if channel is not None:
        return channel
    aligned = aligned_layout(facts, value, view.layout)
    if aligned is None or any(CHANNEL in labels(factors) for factors in aligned):
        return None
    return TokenFactor(View(value, aligned))


def aligned_layout(facts: Facts, value: ir.Value, layout: Layout) -> Layout | None:
    """The layout of an operand that broadcasts against a view, aligned at the last axis."""
    sizes = facts.sizes(value)
    if sizes is None or len(sizes) > len(layout):
        return None
    tail = layout[len(layout) - len(sizes) :]
    if any(size != ONE and not factors for size, factors in zip(sizes, tail, strict=True)):
        return None
    return tuple(() if size == ONE else factors for size, factors in zip(sizes, tail, strict=True))


def channel_factor(facts: Facts, value: ir.Value, layout: Layout) -> ChannelFactor | None:
    """The operand as [1 or H, 1 or D], where it depends on heads and channels only."""
    aligned = aligned_layout(facts, value, layout)
    if aligned is None:
        return None
    digits = [factor for factors in aligned for factor in factors]
    if any(f.label not in (HEAD, CHANNEL) or f.size.known is None for f in digits):
        return None
    array = facts.constants.array(value)
    source: r.Recipe = r.Source(value)
    if array is not None:
        if np.unique(array).size == 1:
            single = r.Constant(array.reshape(-1)[:1].reshape(1, 1))
            return ChannelFactor(single, per_head=False, per_channel=False)
        source = source if facts.sizes(value) == (extent(layout, CHANNEL),) else r.Constant(array)
    return _arranged(source, digits, layout)


def per_head_factor(facts: Facts, parameter: PerHead, layout: Layout) -> ChannelFactor | None:
    """One tensor a head, each [D], as [H, D]."""
    channels = extent(layout, CHANNEL)
    if not whole(layout[parameter.axis], HEAD, Size(parameter.num_heads)):
        return None
    if len(parameter.values) != parameter.num_heads or not whole(layout[-1], CHANNEL, channels):
        return None
    if any(facts.sizes(value) != (channels,) for value in parameter.values):
        return None
    arrays = [facts.constants.array(value) for value in parameter.values]
    rows = [
        r.reshape(r.Source(value) if array is None else r.Constant(array), [1, channels.count])
        for value, array in zip(parameter.values, arrays, strict=True)
    ]
    return ChannelFactor(r.concat(rows, 0), per_head=True, per_channel=True)


def _arranged(source: r.Recipe, digits: list[Factor], layout: Layout) -> ChannelFactor | None:
    order = sorted(
        range(len(digits)), key=lambda i: (digits[i].label != HEAD, -digits[i].stride.count)
    )
    shape = [digits[i].size.count for i in range(len(digits))]
    sizes = {
        label: product(f.size for f in digits if f.label == label) for label in (HEAD, CHANNEL)
    }
    if any(size not in (ONE, extent(layout, label)) for label, size in sizes.items()):
        return None
    spread = r.transpose(r.reshape(source, shape), order) if order != sorted(order) else source
    values = r.reshape(spread, [sizes[HEAD].count, sizes[CHANNEL].count])
    return ChannelFactor(values, sizes[HEAD] != ONE, sizes[CHANNEL] != ONE)


def whole(factors: tuple[Factor, ...], label: str, size: Size) -> bool:
    """Whether an axis is exactly one whole logical axis."""
    return (not factors and size == ONE) or (
        labels(factors) == (label,) and axis_size(factors) == size and factors[0].stride == ONE
    )
