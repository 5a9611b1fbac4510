"""What TensorRT would drop without a word, refused before TensorRT sees the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from qkexport.engine.bindings import Flavour
from qkexport.errors import UnsupportedModelError
from qkexport.spec import OP_DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir

# `trt` holds the custom operators that TensorRT's parser itself imports.
_STANDARD_DOMAINS: Final = ("", "ai.onnx", "trt")
_LOWER: Final = "qkexport convert --form native --runtime tensorrt lowers attention for TensorRT."

# Attributes of ONNX Attention that TensorRT 10 to 11 and TensorRT-RTX 1.7 honour, and the value
# that makes each other one harmless. Windows are dropped without a message: engines with and
# without them have the same bytes.
_HONOURED: Final = ("scale", "is_causal", "q_num_heads", "kv_num_heads")
_HARMLESS: Final[Mapping[str, float]] = {
    "softcap": 0.0,
    "qk_matmul_output_mode": 0,
    "left_window_size": -1,
    "right_window_size": -1,
}
_HONOURED_INPUTS: Final = 4


def check_model(model: ir.Model, flavour: Flavour) -> None:
    """Refuses what the runtime would ignore, compute wrongly or die of.

    Args:
        model: As it will be handed to TensorRT.
        flavour: Which TensorRT.

    Raises:
        UnsupportedModelError: Names the node and the rule.
    """
    functions = {(function.domain, function.name) for function in model.functions.values()}
    nodes = [*model.graph.all_nodes()]
    for function in model.functions.values():
        nodes += function.all_nodes()
    for node in nodes:
        if (node.domain, node.op_type) not in functions:
            _check_node(node, flavour)


def _check_node(node: ir.Node, flavour: Flavour) -> None:
    if node.domain == OP_DOMAIN and flavour.takes_plugins:
        return
    if node.domain not in _STANDARD_DOMAINS:
        rule = f"must be an operator of standard ONNX for {flavour}"
        hint = _LOWER if node.domain == OP_DOMAIN else "replace the node before building."
        raise _refusal(node, rule, f"{node.domain}::{node.op_type}", hint)
    if node.op_type == "Attention":
        _check_attention(node)


def _check_attention(node: ir.Node) -> None:
    for name, attribute in node.attributes.items():
        if name not in _HONOURED and attribute.value != _HARMLESS.get(name):
            raise _refusal(node, f"uses attribute {name}, which TensorRT ignores", attribute.value)
    extra = [value.name for value in node.inputs[_HONOURED_INPUTS:] if value is not None]
    if extra:
        raise _refusal(node, "has inputs that TensorRT ignores", extra)
    presents = [value.name for value in node.outputs[1:] if value.name]
    if presents:
        raise _refusal(node, "has outputs that TensorRT does not compute", presents)
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if mask is not None and node.attributes.get_int("is_causal"):
        raise _refusal(node, "must have a mask or is_causal, not both", mask.name)


def _refusal(node: ir.Node, rule: str, value: object, hint: str = _LOWER) -> UnsupportedModelError:
    name = node.name or next((output.name for output in node.outputs), "")
    return UnsupportedModelError(f"{node.op_type} node {name!r} {rule}, got {value}.", hint=hint)
