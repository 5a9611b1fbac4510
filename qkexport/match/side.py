"""A query or key side of an attention, its steps folded into what the operator has words for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.factors import (
    ChannelFactor,
    Scaling,
    TokenFactor,
    channel_factor,
    per_head_factor,
)
from qkexport.match.facts import FLOATS, Facts, View
from qkexport.match.layout import CHANNEL, HEAD, Layout, extent
from qkexport.match.norms import PerHead
from qkexport.match.operand import Copied, Effect, Joined, Normed, Past, Trail
from qkexport.match.proof import NotProvenError, describe
from qkexport.match.rotary import Rotation, RowPart, joined_rotation
from qkexport.match.sizes import ONE, product
from qkexport.spec import NormAxis, QkNorm


@dataclasses.dataclass(frozen=True)
class Stream:
    """One normalized tensor.

    Attributes:
        kind: Of norm.
        axes: Meanings its axis can have (one head is all heads where there is only one).
        epsilon: Of the norm.
        rounds_first: Rounded to a narrower type before the gain.
        gain: Product of all gains, or None.
        bias: Sum of all biases, or None.
        raw: Views of the tensor before the norm, any of which will do.
    """

    kind: QkNorm
    axes: frozenset[NormAxis]
    epsilon: float
    rounds_first: bool
    gain: ChannelFactor | None
    bias: ChannelFactor | None
    raw: tuple[View, ...]


@dataclasses.dataclass(frozen=True)
class Side:
    """Query or key.

    Attributes:
        streams: One, or several joined along the tokens; none where there is no norm.
        raw: Views to pass where there is no norm.
        scale: Constant factor.
        token_factors: Factors that depend on the token.
        rotation: RoPE, or None.
        rotates_first: RoPE comes before the norm.
        copies: How often each head is repeated.
        past: Earlier rows, or None.
    """

    streams: tuple[Stream, ...]
    raw: tuple[View, ...] = ()
    scale: float = 1.0
    token_factors: tuple[View, ...] = ()
    rotation: Rotation | None = None
    rotates_first: bool = False
    copies: int = 1
    past: Past | None = None


def plain_side(trail: Trail, past: View | None = None) -> Side:
    """A side without a norm: taken as it is after copies and constant factors.

    Args:
        trail: The walk.
        past: Earlier rows that the attention itself puts in front: they are not scaled.
    """
    if past is not None:
        return Side((), trail.views[0], past=Past(past, past, trail.start))
    scale, copies, count = 1.0, 1, 0
    for effect in trail.effects:
        number = _number(effect)
        if isinstance(effect, Copied):
            copies *= effect.times
        elif number is not None:
            scale *= number
        else:
            break
        count += 1
    return Side((), trail.views[count], scale, copies=copies)


def _number(effect: Effect) -> float | None:
    if not isinstance(effect, Scaling) or effect.adds:
        return None
    return effect.factor.number if isinstance(effect.factor, ChannelFactor) else None


def normalized_side(facts: Facts, trail: Trail, past: View | None = None) -> Side:
    """Folds a trail that has a norm.

    Args:
        facts: The graph.
        trail: The walk.
        past: Earlier rows that the attention itself puts in front.

    Raises:
        NotProvenError: Its steps come in an order the operator does not have.
    """
    fold = _Fold(facts)
    place = next(i for i, e in enumerate(trail.effects) if isinstance(e, Normed | Joined))
    anchor = trail.effects[place]
    before = [e for e in trail.effects[place + 1 :] if isinstance(e, Rotation)]
    fold.rotation = before[0] if before else None
    fold.rotates_first = bool(before)
    if isinstance(anchor, Normed):
        fold.begin(anchor, trail.views[-1])
    elif isinstance(anchor, Joined):
        fold.join([normalized_side(facts, stream) for stream in anchor.streams])
    for effect in reversed(trail.effects[:place]):
        fold.apply(effect)
    if past is not None:
        fold.apply(Past(past, past, trail.start))
    return fold.side()


class _Fold:
    """Applies effects from the norm towards the scores."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.streams: list[Stream] = []
        self.rotation: Rotation | None = None
        self.rotates_first = False
        self.scale = 1.0
        self.tokens: list[View] = []
        self.copies = 1
        self.past: Past | None = None

    def begin(self, normed: Normed, raw: tuple[View, ...]) -> None:
        norm, view = normed.norm, normed.result
        gain = _parameter(self.facts, norm.weight, view)
        half = self.facts.dtype(view.value) in FLOATS[1:]
        self.scale = norm.factor
        stream = Stream(
            norm.kind,
            _meanings(view.layout, norm.axes, view.value.producer()),
            norm.epsilon,
            rounds_first=norm.rounds_before_weight and half,
            gain=gain,
            bias=_parameter(self.facts, norm.bias, view),
            raw=raw,
        )
        self.streams = [stream]

    def join(self, sides: list[Side]) -> None:
        self.rotation = joined_rotation(self.facts, [_rotated_stream(side) for side in sides])
        for side in sides:
            if side.token_factors or side.past or side.copies != 1 or side.rotates_first:
                raise NotProvenError("joined streams are scaled by token one by one")
            number = _constant(side.scale)
            for stream in side.streams:
                self.streams.append(_times(stream, number) if side.scale != 1.0 else stream)

    def apply(self, effect: Effect) -> None:
        if isinstance(effect, Scaling):
            self._scaled(effect)
        elif isinstance(effect, Rotation):
            if self.rotation is not None or self.past is not None:
                raise NotProvenError("a rotation follows the cache", effect.source.value.producer())
            self.rotation = effect
        elif isinstance(effect, Copied):
            self.copies *= effect.times
        elif isinstance(effect, Past):
            self._absorb_scale()  # earlier rows are not scaled again
            self.past = effect
        else:
            raise NotProvenError("it is normalized twice")

    def _scaled(self, effect: Scaling) -> None:
        factor, node = effect.factor, effect.source.value.producer()
        turned = self.rotation is not None and not self.rotates_first
        if isinstance(factor, TokenFactor):
            self.tokens.append(factor.view)
            return
        if factor.number is not None and not effect.adds:
            self.scale *= factor.number
            return
        if self.past is not None or (turned and (factor.per_channel or effect.adds)):
            where = "the cache" if self.past is not None else "the rotation"
            what = "bias" if effect.adds else "scale a channel"
            raise NotProvenError(f"a {what} comes after {where}", node)
        if effect.adds:
            if self.tokens:
                raise NotProvenError("a bias comes after a scale a token", node)
            self._absorb_scale()
            self.streams = [
                dataclasses.replace(s, bias=factor if s.bias is None else _sum(s.bias, factor))
                for s in self.streams
            ]
            return
        half = self.facts.dtype(effect.source.value) in FLOATS[1:]
        self.streams = [
            _times(dataclasses.replace(s, rounds_first=half) if s.gain is None else s, factor)
            for s in self.streams
        ]

    def _absorb_scale(self) -> None:
        """Moves the constant factor into the gain, where it no longer applies to everything."""
        if self.scale != 1.0:
            self.streams = [_times(stream, _constant(self.scale)) for stream in self.streams]
            self.scale = 1.0

    def side(self) -> Side:
        return Side(
            tuple(self.streams),
            scale=self.scale,
            token_factors=tuple(self.tokens),
            rotation=self.rotation,
            rotates_first=self.rotates_first,
            copies=self.copies,
            past=self.past,
        )


def _rotated_stream(side: Side) -> RowPart:
    return RowPart(side.streams[0].raw[0], side.rotation)


def _parameter(facts: Facts, value: ir.Value | PerHead | None, view: View) -> ChannelFactor | None:
    if value is None:
        return None
    if isinstance(value, PerHead):
        factor = per_head_factor(facts, value, view.layout)
    else:
        factor = channel_factor(facts, value, view.layout)
    if factor is None:
        node = view.value.producer()
        raise NotProvenError("a norm parameter has no shape of heads and channels", node)
    return None if factor.number == 1.0 else factor


def _meanings(layout: Layout, axes: tuple[int, ...], node: ir.Node | None) -> frozenset[NormAxis]:
    """What a norm over these axes means."""
    inside = [f for i in axes for f in layout[i]]
    outside = [f for i, factors in enumerate(layout) if i not in axes for f in factors]
    if {f.label for f in inside} - {HEAD, CHANNEL} or not any(f.label == CHANNEL for f in inside):
        raise NotProvenError(f"the norm does not run over channels: {describe(node)}", node)
    if any(f.label == CHANNEL for f in outside):
        raise NotProvenError(f"the norm runs over part of each head: {describe(node)}", node)
    heads = extent(layout, HEAD)
    if heads == ONE:
        return frozenset(NormAxis)
    covered = product(f.size for f in inside if f.label == HEAD)
    if covered not in (ONE, heads):
        raise NotProvenError(f"the norm runs over some of the heads: {describe(node)}", node)
    return frozenset({NormAxis.HEAD if covered == ONE else NormAxis.HIDDEN})


def _constant(number: float) -> ChannelFactor:
    return ChannelFactor(r.floats([[number]]), per_head=False, per_channel=False)


def _times(stream: Stream, factor: ChannelFactor) -> Stream:
    gain = factor if stream.gain is None else combined("Mul", stream.gain, factor)
    bias = None if stream.bias is None else combined("Mul", stream.bias, factor)
    return dataclasses.replace(stream, gain=gain, bias=bias)


def _sum(left: ChannelFactor, right: ChannelFactor) -> ChannelFactor:
    return combined("Add", left, right)


def combined(op_type: str, left: ChannelFactor, right: ChannelFactor) -> ChannelFactor:
    """Product or sum in float32."""
    values = r.binary(
        op_type, r.cast(left.values, ir.DataType.FLOAT), r.cast(right.values, ir.DataType.FLOAT)
    )
    return ChannelFactor(
        values, left.per_head or right.per_head, left.per_channel or right.per_channel
    )


def parameter_recipe(
    factors: Sequence[ChannelFactor | None],
    axis: NormAxis,
    heads: int,
    channels: int,
    *,
    unit: float,
) -> r.Recipe | None:
    """Gains or biases of all streams as one input of the operator, or None where all are unit."""
    if all(factor is None or factor.number == unit for factor in factors):
        return None
    absent = ChannelFactor(r.floats([[unit]]), per_head=False, per_channel=False)
    present = [factor or absent for factor in factors]
    hidden = axis is NormAxis.HIDDEN
    shape = [heads, channels] if hidden or any(f.per_head for f in present) else [channels]
    final = [heads * channels] if hidden else shape
    parts = [_spread(factor, shape, final) for factor in present]
    if len(parts) == 1:
        return parts[0]
    single = _one_type(parts)
    return r.concat([r.reshape(part, [1, *final]) for part in single], 0)


def _spread(factor: ChannelFactor, shape: list[int], final: list[int]) -> r.Recipe:
    channels, heads = shape[-1], shape[0] if len(shape) == 2 else 1
    full = factor.per_channel or channels == 1
    if full and (factor.per_head or heads == 1 or len(shape) == 1):
        return r.reshape(factor.values, final)
    if isinstance(factor.values, r.Constant):
        spread = np.broadcast_to(factor.values.array, (heads, channels))
        return r.reshape(r.Constant(np.ascontiguousarray(spread)), final)
    expanded = r.Apply("Expand", (factor.values, r.integers([heads, channels])))
    return r.reshape(expanded, final)


def _one_type(parts: list[r.Recipe]) -> list[r.Recipe]:
    types = {part.value.dtype if isinstance(part, r.Source) else None for part in parts}
    if len(types) == 1 and None not in types:
        return parts
    return [r.cast(part, ir.DataType.FLOAT) for part in parts]
