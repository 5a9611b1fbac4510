"""Makes a bfloat16 model run in ONNX Runtime on a CPU, which has few bfloat16 kernels.

Every computing node gets float32 inputs and its float results are rounded back to bfloat16, so a
value is rounded wherever the model rounds it. Within a node the arithmetic is float32: what is
called "bf16 emulated" in reports.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import onnx_ir as ir

# Nodes that only move elements: ONNX Runtime has these for bfloat16.
_MOVERS: Final = frozenset(
    {
        "Cast", "CastLike", "Concat", "Constant", "Gather", "Identity", "Reshape",
        "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze", "Flatten",
    }
)  # fmt: skip
_COMPUTE: Final = ir.DataType.FLOAT
_STORED: Final = ir.DataType.BFLOAT16


def needs_emulation(model: ir.Model) -> bool:
    """True when a value of the graph is bfloat16."""
    return any(
        value.dtype is _STORED
        for graph in _graphs(model)
        for node in graph
        for value in (*node.inputs, *node.outputs)
        if value is not None
    ) or any(value.dtype is _STORED for value in (*model.graph.inputs, *model.graph.outputs))


def emulate_bfloat16(model: ir.Model, native: Set[str] = frozenset()) -> None:
    """Rewrites a model in place; its inputs, outputs and weights keep their types.

    Model-local functions are left alone: inline them first. Values need their types (value_info).

    Args:
        model: The model.
        native: Domains whose operators compute in bfloat16 themselves.
    """
    for graph in _graphs(model):
        for node in list(graph):
            if node.domain in native or (node.domain == "" and node.op_type in _MOVERS):
                continue
            _widen_inputs(graph, node)
            _widen_attributes(node)
            _round_outputs(graph, node)


def _graphs(model: ir.Model) -> list[ir.Graph]:
    return [model.graph, *model.graph.subgraphs()]


def _widen_inputs(graph: ir.Graph, node: ir.Node) -> None:
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype is _STORED:
            cast = ir.node("Cast", [value], {"to": _COMPUTE})
            cast.outputs[0].dtype = _COMPUTE
            cast.outputs[0].shape = value.shape
            graph.insert_before(node, cast)
            node.replace_input_with(index, cast.outputs[0])


def _widen_attributes(node: ir.Node) -> None:
    """Types that a node makes of no input: ConstantOfShape's value, EyeLike's dtype."""
    value = node.attributes.get("value")
    if node.op_type == "ConstantOfShape" and value is not None:
        tensor = value.as_tensor()
        if tensor.dtype is _STORED:
            wide = ir.tensor(tensor.numpy().astype("float32"), dtype=_COMPUTE)
            node.attributes["value"] = ir.AttrTensor("value", wide)
    dtype = node.attributes.get("dtype")
    if dtype is not None and dtype.type is ir.AttributeType.INT and dtype.as_int() == _STORED:
        node.attributes["dtype"] = ir.AttrInt64("dtype", int(_COMPUTE))


def _round_outputs(graph: ir.Graph, node: ir.Node) -> None:
    for value in node.outputs:
        if value.dtype is not _STORED:
            continue
        cast = ir.node("Cast", [value], {"to": _STORED})
        rounded = cast.outputs[0]
        rounded.dtype, rounded.shape = _STORED, value.shape
        value.replace_all_uses_with(rounded, replace_graph_outputs=True)
        cast.replace_input_with(0, value)
        name, value.name = value.name, f"{value.name}_float32"
        rounded.name = name
        value.dtype = _COMPUTE
        graph.insert_after(node, cast)
