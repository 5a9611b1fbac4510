"""Puts fused nodes in the place of the attentions that matching has proven."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from qkexport.match import Match, MatchReport, Replacement
from qkexport.match.recipe import Apply, Constant, Produced, Recipe, Source
from qkexport.signature import INPUT_NAMES
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION


def fuse_attention(model: ir.Model, report: MatchReport) -> None:
    """Replaces every match by one QKNormAttention node, in place.

    Nodes that lose their last use are removed. New values carry types and shapes. Functions for
    the new nodes are not added here.

    Args:
        model: The model that `report` was made from, unchanged since.
        report: What `find_attention` answered.
    """
    if not report.matches:
        return
    writer = _Writer(model.graph)
    for match in report.matches:
        writer.fuse(match)
    model.graph.sort()
    model.graph.opset_imports[OP_DOMAIN] = OP_VERSION
    common_passes.RemoveUnusedNodesPass()(model)


class _Writer:
    """Turns recipes into nodes of one graph, equal recipes into one node."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[Recipe, ir.Value] = {}
        self._names = {value.name for node in graph for value in node.outputs}
        self._names.update(value.name for value in graph.inputs)
        self._names.update(graph.initializers)

    def fuse(self, match: Match) -> None:
        inputs = [self._value(match, match.inputs.get(name)) for name in INPUT_NAMES]
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = match.spec.to_attributes()
        node = ir.node(
            OP_TYPE,
            inputs,
            attributes=attributes,
            domain=OP_DOMAIN,
            num_outputs=len(match.signature.outputs),
            name=self._fresh(f"{match.name}_fused"),
        )
        for value, name in zip(node.outputs, match.signature.outputs, strict=True):
            value.name = self._fresh(f"{match.name}_{name}")
            _set_type(value, match, name)
        self._graph.append(node)
        for replacement in match.outputs:
            self._replace(match, node, replacement)

    def _replace(self, match: Match, node: ir.Node, replacement: Replacement) -> None:
        produced = dict(zip(match.signature.outputs, node.outputs, strict=True))
        new = self._build(match, replacement.recipe, produced)
        old = replacement.value
        if isinstance(replacement.recipe, Produced):
            new.shape, new.type = old.shape or new.shape, old.type or new.type
        else:
            new.shape, new.type = old.shape, old.type
        before = _ancestors(node)
        for user, index in [(use.node, use.idx) for use in old.uses()]:
            if user not in before:
                user.replace_input_with(index, new)
        for index, output in enumerate(self._graph.outputs):
            if output is old:
                self._take_name(old, new)
                self._graph.outputs[index] = new

    def _take_name(self, old: ir.Value, new: ir.Value) -> None:
        name, old.name = old.name, self._fresh(f"{old.name}_unfused")
        new.name = name

    def _value(self, match: Match, recipe: Recipe | None) -> ir.Value | None:
        return None if recipe is None else self._build(match, recipe, {})

    def _build(self, match: Match, recipe: Recipe, produced: dict[str, ir.Value]) -> ir.Value:
        if isinstance(recipe, Source):
            _describe(recipe.value, match)
            return recipe.value
        if isinstance(recipe, Produced):
            return produced[recipe.name]
        if not produced and recipe in self._made:
            return self._made[recipe]
        value = (
            self._constant(recipe)
            if isinstance(recipe, Constant)
            else self._node(match, recipe, produced)
        )
        if recipe in match.types and not isinstance(recipe, Constant):
            known = match.types[recipe]
            value.type, value.shape = ir.TensorType(known.dtype), known.shape()
        if not produced:
            self._made[recipe] = value
        return value

    def _constant(self, recipe: Constant) -> ir.Value:
        if recipe in self._made:
            return self._made[recipe]
        name = self._fresh("qk_constant")
        tensor = ir.tensor(recipe.array, name=name)
        value = ir.val(name, const_value=tensor)
        self._graph.register_initializer(value)
        self._made[recipe] = value
        return value

    def _node(self, match: Match, recipe: Apply, produced: dict[str, ir.Value]) -> ir.Value:
        inputs = [self._build(match, item, produced) for item in recipe.inputs]
        node = ir.node(recipe.op_type, inputs, attributes=dict(recipe.attributes))
        value = node.outputs[0]
        value.name = self._fresh(f"qk_{recipe.op_type.lower()}")
        self._graph.append(node)
        return value

    def _fresh(self, name: str) -> str:
        """A name that no value of the graph has."""
        fresh, count = name, 0
        while fresh in self._names:
            count += 1
            fresh = f"{name}_{count}"
        self._names.add(fresh)
        return fresh


def _describe(value: ir.Value, match: Match) -> None:
    """Type and shape of a value that the file does not give, as matching derived them."""
    known = match.types.get(Source(value))
    if known is None:
        return
    if value.type is None:
        value.type = ir.TensorType(known.dtype)
    if value.shape is None:
        value.shape = known.shape()


def _set_type(value: ir.Value, match: Match, name: str) -> None:
    """Type and shape of an output, from the inputs' own."""
    signature = match.signature
    dims = signature.dims
    heads, kv_heads = signature.spec.num_heads, signature.spec.num_kv_heads
    width = dims.head_dim_v
    if name == "present_key":
        shape = [dims.batch_size, kv_heads, dims.seqlen_total, dims.head_dim]
    elif name == "present_value":
        shape = [dims.batch_size, kv_heads, dims.seqlen_total, width]
    elif signature.rank == 4:
        shape = [dims.batch_size, heads, dims.seqlen_q, width]
    else:
        merged = None if width is None else heads * width
        shape = [dims.batch_size, dims.seqlen_q, merged]
    value.shape = ir.Shape(shape)
    value.type = ir.TensorType(_query_dtype(match))


def _query_dtype(match: Match) -> ir.DataType:
    return ir.DataType[_IR_NAMES[str(match.signature.dtype)]]


_IR_NAMES = {"float32": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}


def _ancestors(node: ir.Node) -> set[ir.Node]:
    """All nodes that a node needs, and itself."""
    pending, seen = [node], {node}
    while pending:
        for before in pending.pop().predecessors():
            if before not in seen:
                seen.add(before)
                pending.append(before)
    return seen
