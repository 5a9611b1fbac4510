"""Core and sides put together: the spec and the inputs of the fused node, or why there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx_ir as ir

from qkexport.errors import InvalidSpecError
from qkexport.match import recipe as r
from qkexport.match.arrange import first, head_major, ordered, restored, token_major
from qkexport.match.core import Core
from qkexport.match.facts import Facts, View, is_op
from qkexport.match.grids import vector_offset
from qkexport.match.layout import BATCH, CHANNEL, HEAD, ROW, are_whole, extent
from qkexport.match.masks import mask_recipe
from qkexport.match.offsets import Offset
from qkexport.match.operand import Past, Trail, coarser_heads, trace_operand
from qkexport.match.proof import NotProvenError
from qkexport.match.replacement import output_replacement
from qkexport.match.report import Match, Replacement
from qkexport.match.rotary import Rotation, unrotated
from qkexport.match.side import Side, Stream, normalized_side, parameter_recipe, plain_side
from qkexport.match.static_cache import lengths_follow, valid_rows
from qkexport.match.tokens import compares_channels
from qkexport.match.types import RecipeType, recipe_types
from qkexport.match.values import ValueSide, value_side
from qkexport.match.visibility import Rows, Visibility, visibility
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES, AttentionSignature
from qkexport.spec import AttentionSpec, Causal, KvCache, NormAxis, NormRounding, Rotary

Inputs = dict[str, r.Recipe]


@dataclasses.dataclass(frozen=True)
class Trails:
    """Both walks of one attention."""

    query: Trail
    key: Trail


class NoNormError(NotProvenError):
    """No norm was reached from the query; there may be one behind an operator without a rule."""

    def __init__(self, trails: Trails) -> None:
        self.on_key = trails.key.has_norm
        reason = "only the keys are normalized" if self.on_key else "no norm on query or key"
        super().__init__(reason, trails.query.end.value.producer())
        self.ends = (trails.query.end.value, trails.key.end.value)


def trace_core(facts: Facts, core: Core) -> Trails:
    """Walks back from query and key.

    Keys that the attention itself puts behind earlier ones are already shaped as those.
    """
    layout = coarser_heads(core.key.layout, core.key_copies)
    key = View(core.key.value, layout)
    return Trails(
        trace_operand(facts, core.query, is_key=False),
        trace_operand(facts, key, is_key=core.past_key is None),
    )


def assemble(facts: Facts, core: Core, trails: Trails) -> Match:
    """The fused node of an attention.

    Raises:
        NotProvenError: Something about it has no place in the operator.
    """
    query, key = _sides(facts, trails, core.past_key)
    value = value_side(facts, core, has_past=key.past is not None)
    builder = _Builder(facts, core, query, key, value)
    return builder.match()


def _sides(facts: Facts, trails: Trails, past: View | None) -> tuple[Side, Side]:
    if not trails.query.has_norm:
        raise NoNormError(trails)
    query = normalized_side(facts, trails.query)
    for stream in query.streams:
        if compares_channels(facts, stream.raw[0]):
            node = stream.raw[0].value.producer()
            raise NotProvenError("it attends over channels, what is normalized are tokens", node)
    if not trails.key.has_norm:
        return query, plain_side(trails.key, past)
    key = normalized_side(facts, trails.key, past)
    if key.token_factors:
        node = key.token_factors[0].value.producer()
        raise NotProvenError("the keys are scaled by token", node)
    return query, key


class _Builder:
    """Collects inputs and attributes of one fused node."""

    def __init__(self, facts: Facts, core: Core, query: Side, key: Side, value: ValueSide) -> None:
        self.facts = facts
        self.core = core
        self.query = query
        self.key = key
        self.value = value
        self.heads = _known(extent(core.query.layout, HEAD).known, "the number of heads", core)
        self.channels = _known(extent(core.query.layout, CHANNEL).known, "head_dim", core)
        self.kv_heads = _kv_heads(core, core.key, key.copies)
        if _kv_heads(core, core.value, value.copies) != self.kv_heads:
            raise NotProvenError("keys and values have different numbers of heads", core.node)
        self.dtype = facts.dtype(core.value.value)
        self.types: dict[r.Recipe, RecipeType] = {}
        self.rotation: Rotation | None = None
        self.cache = KvCache.CONCAT
        self.sight = Visibility(core.masks)

    def match(self) -> Match:
        axis = self._norm_axis()
        inputs: Inputs = {}
        self._add_projections(inputs)
        self._add_parameters(inputs, axis)
        self._add_rotation(inputs)
        self._add_scores(inputs)
        self._add_past(inputs)
        self._add_segments(inputs)
        replacements = self._replacements(inputs)
        signature = self._signature(axis, inputs, len(replacements) > 1)
        ordered_inputs: Inputs = {name: inputs[name] for name in INPUT_NAMES if name in inputs}
        nodes = consumed_nodes(replacements, ordered_inputs)
        return Match(
            self.core.name,
            self.core.node,
            signature,
            ordered_inputs,
            replacements,
            nodes,
            self.types,
        )

    def _norm_axis(self) -> NormAxis:
        streams = [*self.query.streams, *self.key.streams]
        head = self.query.streams[0]
        for other in streams[1:]:
            if other.kind is not head.kind:
                raise NotProvenError(f"norms differ: {head.kind} and {other.kind}", self.core.node)
            if np.float32(other.epsilon) != np.float32(head.epsilon):
                epsilons = f"{head.epsilon:g} and {other.epsilon:g}"
                raise NotProvenError(f"norms have different epsilons, {epsilons}", self.core.node)
        axes = frozenset.intersection(*(stream.axes for stream in streams))
        if not axes:
            raise NotProvenError("norms run over a head and over all heads", self.core.node)
        return NormAxis.HEAD if NormAxis.HEAD in axes else NormAxis.HIDDEN

    def _add_projections(self, inputs: Inputs) -> None:
        """Query, key and value in one layout: token major where none needs a transpose."""
        groups = [self.query.streams, self.key.streams]
        raws: list[Sequence[Sequence[View]]] = [
            [stream.raw for stream in streams] or [side.raw]
            for streams, side in zip(groups, (self.query, self.key), strict=True)
        ]
        raws.append([self.value.raw])
        for arrange, axis in ((token_major, 1), (head_major, 2)):
            found = [self._projection(parts, arrange, axis) for parts in raws]
            if None not in found:
                inputs.update(zip(("query", "key", "value"), _present(found), strict=True))
                self.rank = 3 if arrange is token_major else 4
                return
        raise NotProvenError(
            f"query, key and value have no common layout in {self.dtype}", self.core.node
        )

    def _projection(
        self,
        parts: Sequence[Sequence[View]],
        arrange: Callable[[View], r.Recipe | None],
        axis: int,
    ) -> r.Recipe | None:
        found = [
            first(arrange(view) for view in views if self.facts.dtype(view.value) == self.dtype)
            for views in parts
        ]
        return None if None in found else r.concat(_present(found), axis)

    def _add_parameters(self, inputs: Inputs, axis: NormAxis) -> None:
        sides = (("q", self.query, self.heads), ("k", self.key, self.kv_heads))
        for prefix, side, heads in sides:
            gains = [stream.gain for stream in side.streams]
            biases = [stream.bias for stream in side.streams]
            for name, factors, unit in (("weight", gains, 1.0), ("bias", biases, 0.0)):
                recipe = parameter_recipe(factors, axis, heads, self.channels, unit=unit)
                if recipe is not None:
                    inputs[f"{prefix}_norm_{name}"] = recipe

    def _add_rotation(self, inputs: Inputs) -> None:
        query, key = self.query.rotation, self.key.rotation
        if not self.key.streams:
            key = query
        if query is None and key is None:
            return
        query = query or self._unrotated(self.query, key)
        key = key or self._unrotated(self.key, query)
        if _turns(query) != _turns(key):
            raise NotProvenError("query and key are rotated differently", self.core.node)
        self.rotation = query
        inputs.update(cos_cache=query.cos, sin_cache=query.sin)
        if query.positions is not None:
            inputs["position_ids"] = query.positions
        if (key.cos, key.sin, key.positions) != (query.cos, query.sin, query.positions):
            if key.positions != query.positions:
                raise NotProvenError("query and key are rotated at different positions")
            inputs.update(key_cos_cache=key.cos, key_sin_cache=key.sin)

    def _unrotated(self, side: Side, other: Rotation | None) -> Rotation:
        """A rotation by nothing for the side that has none."""
        views = [view for stream in side.streams for view in stream.raw]
        still = None
        if other is not None and other.positions is None and len(side.streams) == 1:
            still = unrotated(self.facts, views, other)
        if still is None:
            raise NotProvenError("only one of query and key is rotated", self.core.node)
        return still

    def _add_scores(self, inputs: Inputs) -> None:
        self.sight = self._visibility()
        mask = mask_recipe(self.facts, self.sight.masks, self.core.node)
        if mask is not None:
            inputs["attn_mask"] = mask
        factors = (*self.core.factors, *self.query.token_factors)
        recipes = [self._head_scale(view) for view in factors]
        if recipes:
            total = recipes[0]
            for recipe in recipes[1:]:
                total = r.binary("Mul", total, recipe)
            inputs["head_scale"] = _per_head_vector(total, self.heads)
        if self.core.kv_lengths is not None:
            inputs["kv_lengths"] = self.core.kv_lengths

    def _visibility(self) -> Visibility:
        """Masks with triangles and windows taken out, where positions are plain numbers."""
        masks, past = self.core.masks, self.key.past
        queries = extent(self.core.query.layout, ROW)
        keys = extent((past.new if past is not None else self.core.key).layout, ROW)
        if past is not None and past.first_row is not None:
            rows = Rows(queries, keys, vector_offset(self.facts, past.first_row))
            found = visibility(self.facts, masks, rows)
            causal = found.causal or self.core.causal is Causal.LOWER_RIGHT
            # else the operator would count from the first row of the buffer
            return found if causal and queries == keys else Visibility(masks)
        if self.core.kv_lengths is not None:
            return Visibility(masks)
        before = Offset() if past is None else Offset.of(extent(past.past.layout, ROW))
        return visibility(self.facts, masks, Rows(queries, keys, before))

    def _causal(self) -> Causal:
        if not self.sight.causal:
            return self.core.causal
        return Causal.LOWER_RIGHT if self.cache is KvCache.STATIC else Causal.UPPER_LEFT

    def _head_scale(self, view: View) -> r.Recipe:
        array = self.facts.constants.array(view.value)
        source: r.Recipe = r.Source(view.value) if array is None else r.Constant(array)
        recipe = ordered(source, view.layout, (BATCH, HEAD, ROW, CHANNEL))
        whole = are_whole(view.layout, self.core.query.layout, (BATCH, HEAD, ROW))
        if recipe is None or not whole:
            raise NotProvenError("a temperature has axes out of order", view.value.producer())
        padded = 4 - view.rank if recipe is source else 0
        return r.cast(r.unsqueeze(recipe, list(range(padded))), ir.DataType.FLOAT)

    def _add_past(self, inputs: Inputs) -> None:
        if self.key.past is None:
            return
        pair = (("past_key", self.key.past), ("past_value", self.value.past))
        for name, past in pair:
            recipe = None if past is None else head_major(past.past)
            if recipe is None:
                raise NotProvenError("the cache has no layout of heads and tokens", self.core.node)
            inputs[name] = recipe
        self._check_static(inputs)

    def _check_static(self, inputs: Inputs) -> None:
        """Both buffers are written at one place, the end of what is valid."""
        key, value = self.key.past, self.value.past
        if key is None or value is None or key.first_row is None is value.first_row:
            return
        lengths = self.core.kv_lengths
        if key.first_row is None or key.first_row is not value.first_row:
            raise NotProvenError("keys and values are written at different rows", self.core.node)
        if lengths is None and self.sight.causal:  # which hides all behind the new rows
            inputs["kv_lengths"] = valid_rows(self.facts, key.first_row, key.new)
            self.cache = KvCache.STATIC
            return
        if not isinstance(lengths, r.Source) or not lengths_follow(
            self.facts, lengths.value, key.first_row, key.new
        ):
            reason = "rows are written into a buffer whose valid length is not proven"
            raise NotProvenError(reason, key.present.value.producer())
        self.cache = KvCache.STATIC

    def _add_segments(self, inputs: Inputs) -> None:
        """Where each stream ends, from the lengths of the query's streams."""
        if len(self.query.streams) == 1 and len(self.key.streams) <= 1:
            return
        if len(self.query.streams) != len(self.key.streams):
            raise NotProvenError("query and key join different streams", self.core.node)
        lengths = [_rows(self.facts, s) for s in self.query.streams]
        if [_size(self.facts, s) for s in self.query.streams] != [
            _size(self.facts, s) for s in self.key.streams
        ]:
            raise NotProvenError("the streams of query and key differ in length", self.core.node)
        ends = [lengths[0]]
        for length in lengths[1:]:
            ends.append(r.binary("Add", ends[-1], length))
        inputs["segment_ends"] = r.concat(ends, 0)

    def _signature(self, axis: NormAxis, inputs: Inputs, presents: bool) -> AttentionSignature:
        head, rotation = self.query.streams[0], self.rotation
        rotary = Rotary.NONE
        if rotation is not None:
            rotary = Rotary.BEFORE_NORM if self._rotates_first() else Rotary.AFTER_NORM
        turned = (
            0 if rotation is None or rotation.rotary_dim == self.channels else rotation.rotary_dim
        )
        scale = self.core.scale * self.query.scale * self.key.scale
        try:
            spec = AttentionSpec(
                num_heads=self.heads,
                num_kv_heads=self.kv_heads,
                scale=scale,
                qk_norm=head.kind,
                norm_axis=axis,
                qk_norm_epsilon=head.epsilon,
                norm_rounding=NormRounding.BEFORE_WEIGHT
                if head.rounds_first
                else NormRounding.AFTER_WEIGHT,
                normalize_key=bool(self.key.streams),
                rotary=rotary,
                rotary_dim=turned,
                rotary_interleaved=rotation is not None and rotation.interleaved,
                causal=self._causal(),
                window_left=self.sight.window_left,
                window_right=self.sight.window_right,
                softcap=self.core.softcap,
                kv_cache=self.cache,
            )
            types = {
                name: recipe_types(self.facts, recipe, self.types).as_input()
                for name, recipe in inputs.items()
            }
            outputs = OUTPUT_NAMES if presents else OUTPUT_NAMES[:1]
            return AttentionSignature(spec, types, outputs)
        except InvalidSpecError as error:
            raise NotProvenError(
                f"the operator refuses it: {error.message}", self.core.node
            ) from error

    def _rotates_first(self) -> bool:
        sides = [side for side in (self.query, self.key) if side.rotation is not None]
        if len({side.rotates_first for side in sides}) != 1:
            raise NotProvenError("one of query and key is rotated before its norm", self.core.node)
        return sides[0].rotates_first

    def _replacements(self, inputs: Inputs) -> tuple[Replacement, ...]:
        width = extent(self.core.output.layout, CHANNEL).known
        if width is None:
            raise NotProvenError("head_dim of the values is not known", self.core.node)
        result = [output_replacement(self.facts, self.core.output, self.rank, self.heads, width)]
        pairs = self._presents()
        if pairs:
            result.extend(pairs)
        return tuple(result)

    def _presents(self) -> list[Replacement]:
        """The presents that something outside reads; both or neither."""
        if self.core.presents is not None and self.key.past is not None:
            names = OUTPUT_NAMES[1:]
            pairs = zip(self.core.presents, names, strict=True)
            return [Replacement(value, r.Produced(name)) for value, name in pairs]
        pasts: list[tuple[Past | None, str]] = [
            (self.key.past, "present_key"), (self.value.past, "present_value"),
        ]  # fmt: skip
        if not any(past is not None and _is_read(past.present.value) for past, _ in pasts):
            return []
        result = []
        for past, name in pasts:
            if past is None:
                return []
            recipe = restored(r.Produced(name), (BATCH, HEAD, ROW, CHANNEL), past.present.layout)
            if recipe is None:
                return []
            result.append(Replacement(past.present.value, recipe))
        return result


def _present(found: Iterable[r.Recipe | None]) -> list[r.Recipe]:
    return [recipe for recipe in found if recipe is not None]


def _known(size: int | None, what: str, core: Core) -> int:
    if size is None:
        raise NotProvenError(f"{what} is not known before run time", core.node)
    return size


def _kv_heads(core: Core, view: View, copies: int) -> int:
    return _known(extent(view.layout, HEAD).known, "the number of heads", core) // copies


def _turns(rotation: Rotation) -> tuple[int, bool]:
    return rotation.rotary_dim, rotation.interleaved


def _is_read(value: ir.Value) -> bool:
    """Whether a present has readers of its own besides the attention and its shape."""
    readers = {use.node for use in value.uses() if not is_op(use.node, "Shape")}
    return value.is_graph_output() or len(readers) > 1


def _per_head_vector(recipe: r.Recipe, heads: int) -> r.Recipe:
    """[H] for constants that depend on the head alone."""
    if (
        isinstance(recipe, r.Constant)
        and recipe.array.size in (1, heads)
        and recipe.array.size == recipe.array.shape[1]
    ):
        return r.reshape(recipe, [recipe.array.size])
    return recipe


def _rows(facts: Facts, stream: Stream) -> r.Recipe:
    """Length of a stream, [1] int64."""
    view = stream.raw[0]
    rows = extent(view.layout, ROW).known
    if rows is not None:
        return r.integers([rows])
    place = next(i for i, factors in enumerate(view.layout) if any(f.label == ROW for f in factors))
    if len(view.layout[place]) != 1:
        raise NotProvenError("the length of a stream is not an axis of it", view.value.producer())
    return r.shape_of(r.Source(view.value), place, place + 1)


def _size(facts: Facts, stream: Stream) -> object:
    return extent(stream.raw[0].layout, ROW)


def consumed_nodes(replacements: Sequence[Replacement], inputs: Inputs) -> tuple[ir.Node, ...]:
    """Nodes between the inputs and the replaced values."""
    borders = {value for recipe in inputs.values() for value in r.sources(recipe)}
    pending = [item.value for item in replacements]
    seen: dict[ir.Node, None] = {}
    while pending:
        value = pending.pop()
        node = value.producer()
        if value in borders or node is None or node in seen or is_op(node, "Shape"):
            continue
        seen[node] = None
        pending.extend(item for item in node.inputs if item is not None)
    return tuple(seen)
