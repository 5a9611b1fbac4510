"""QKNormAttention nodes in the IR: what they compute, and the two ways to spell their inputs.

Positional: every input has its place, absent ones are empty. Packed: only the inputs that are
present, named by `input_roles`, because TensorRT has no empty plugin inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from qkexport.errors import InvalidSpecError, UnsupportedModelError
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES, AttentionSignature, DType, TensorType
from qkexport.spec import OP_DOMAIN, OP_TYPE, AttentionSpec, AttributeValue

_DTYPES = {
    ir.DataType.FLOAT: DType.FLOAT32,
    ir.DataType.FLOAT16: DType.FLOAT16,
    ir.DataType.BFLOAT16: DType.BFLOAT16,
    ir.DataType.BOOL: DType.BOOL,
    ir.DataType.INT64: DType.INT64,
}


def is_attention(node: ir.Node) -> bool:
    """Whether a node is `qkexport::QKNormAttention`."""
    return node.domain == OP_DOMAIN and node.op_type == OP_TYPE


def attention_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """All QKNormAttention nodes, those in subgraphs included."""
    return filter(is_attention, ir.traversal.RecursiveGraphIterator(graph))


def node_signature(node: ir.Node) -> AttentionSignature:
    """Reads what a node says: its attributes, and the types and shapes of its inputs.

    Args:
        node: A QKNormAttention node in either spelling.

    Raises:
        InvalidSpecError: The node breaks the operator's contract.
        UnsupportedModelError: The type or rank of an input is not known.
    """
    subject = _subject(node)
    try:
        spec = AttentionSpec.from_attributes(_attributes(node))
        inputs = {name: _tensor_type(node, name, v) for name, v in present_inputs(node).items()}
        return AttentionSignature(spec, inputs, _output_names(node))
    except InvalidSpecError as error:
        message = f"{subject}: {error.message}"
        raise InvalidSpecError(message, note=error.note, hint=error.hint) from error


def present_inputs(node: ir.Node) -> dict[str, ir.Value]:
    """The inputs that a node passes, by the operator's names, in its order."""
    names = _input_names(node)
    pairs = dict(zip(names, node.inputs, strict=False))
    return {name: value for name in INPUT_NAMES if (value := pairs.get(name)) is not None}


def spell_by_position(node: ir.Node) -> None:
    """Gives every input its place and empties the role attributes."""
    present = present_inputs(node)
    last = max(INPUT_NAMES.index(name) for name in present)
    _set_inputs(node, [present.get(name) for name in INPUT_NAMES[: last + 1]])
    _set_roles(node, "", "")


def spell_packed(node: ir.Node) -> None:
    """Leaves absent inputs out and names the others, as TensorRT's plugin needs it."""
    present, outputs = present_inputs(node), _output_names(node)
    _set_inputs(node, list(present.values()))
    _set_roles(node, ",".join(present), ",".join(outputs))


def _subject(node: ir.Node) -> str:
    return f"{OP_TYPE} node {node.name!r}"


def _attributes(node: ir.Node) -> dict[str, AttributeValue]:
    return {name: attr.value for name, attr in node.attributes.items()}


def _roles(node: ir.Node, attribute: str) -> tuple[str, ...]:
    roles = node.attributes.get_string(attribute, "")
    return tuple(roles.split(",")) if roles else ()


def _input_names(node: ir.Node) -> tuple[str, ...]:
    """A name for each input the node passes."""
    roles, count = _roles(node, "input_roles"), len(node.inputs)
    if len(set(roles)) != len(roles):
        message = f"{_subject(node)} must name inputs of the operator once, got {roles}."
        raise InvalidSpecError(message)
    unknown = [name for name in roles if name not in INPUT_NAMES]
    if unknown:
        message = f"{_subject(node)} must name inputs of the operator, got {unknown[0]!r}."
        raise InvalidSpecError(message, note=f"the names are {', '.join(INPUT_NAMES)}.")
    if count > len(INPUT_NAMES) or (roles and count != len(roles)):
        message = f"{_subject(node)} must have as many inputs as names for them, got {count}."
        raise InvalidSpecError(message, note=f"the names are {', '.join(roles or INPUT_NAMES)}.")
    return roles or INPUT_NAMES


def _output_names(node: ir.Node) -> tuple[str, ...]:
    roles, count = _roles(node, "output_roles"), len(node.outputs)
    if count > len(OUTPUT_NAMES) or (roles and count != len(roles)):
        message = f"{_subject(node)} must have as many outputs as names for them, got {count}."
        raise InvalidSpecError(message, note=f"the names are {', '.join(roles or OUTPUT_NAMES)}.")
    return roles or OUTPUT_NAMES[:count]


def _tensor_type(node: ir.Node, name: str, value: ir.Value) -> TensorType:
    if value.dtype is None or value.shape is None:
        message = f"{_subject(node)} must know type and rank of {name}, got {value}."
        raise UnsupportedModelError(
            message, hint="run onnx shape inference on the model before converting it."
        )
    if value.dtype not in _DTYPES:
        accepted = ", ".join(str(dtype) for dtype in _DTYPES.values())
        message = f"{OP_TYPE} {name} has a type the operator does not take, got {value.dtype}."
        raise InvalidSpecError(message, note=f"accepted: {accepted}.")
    shape = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    return TensorType(_DTYPES[value.dtype], shape)


def _set_inputs(node: ir.Node, inputs: Sequence[ir.Value | None]) -> None:
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)


def _set_roles(node: ir.Node, input_roles: str, output_roles: str) -> None:
    node.attributes.add(ir.AttrString("input_roles", input_roles))
    node.attributes.add(ir.AttrString("output_roles", output_roles))
