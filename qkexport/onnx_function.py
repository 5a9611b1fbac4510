"""QKNormAttention as an ONNX function: the body a runtime without our kernel falls back to."""

from __future__ import annotations

import onnx_ir as ir

from qkexport.body import BodyTape, Runtime, Target, attention_body
from qkexport.signature import INPUT_NAMES, AttentionSignature
from qkexport.spec import OP_DOMAIN, OP_TYPE


def attention_function(
    signature: AttentionSignature, *, opset: int, overload: str = ""
) -> ir.Function:
    """The function that a portable model carries for one structure: its body is for ONNX Runtime.

    Args:
        signature: What the nodes that call the function look like.
        opset: Version of the standard operators, 17 to 25; that of the model.
        overload: Tells the functions of one model apart.

    Raises:
        UnsupportedModelError: The opset is out of range, or a head dimension is dynamic.
    """
    return lower(signature, Runtime.ORT, opset, overload=overload)


def lower(
    signature: AttentionSignature,
    runtime: Runtime | str = Runtime.ORT,
    opset: int = 24,
    *,
    overload: str = "",
) -> ir.Function:
    """One attention in standard operators, spelled as `runtime` needs it.

    Args:
        signature: The attributes and input types.
        runtime: `ort` computes in float32 inside; `tensorrt` keeps the tensor type for the
            products and restricts itself to what TensorRT builds.
        opset: Version of the standard operators, 17 to 25.
        overload: Of the function.

    Returns:
        A function with as many inputs as a node of this signature passes, absent ones included.

    Raises:
        UsageError: The runtime is unknown.
        UnsupportedModelError: The opset is out of range, or a head dimension is dynamic.
    """
    tape = BodyTape(Target(Runtime.of(runtime), opset))
    # Without types: those would tell apart functions whose bodies are equal.
    inputs = {name: ir.Value(name=name) for name in positional_inputs(signature)}
    results = attention_body(tape, signature, {name: inputs[name] for name in signature.inputs})
    outputs = [_named_output(tape, *pair) for pair in zip(signature.outputs, results, strict=True)]
    graph = ir.Graph(list(inputs.values()), outputs, nodes=tape.nodes, opset_imports={"": opset})
    attributes = [
        ir.Attr(name, _attribute_type(value), None)
        for name, value in signature.spec.to_attributes().items()
    ]
    return ir.Function(OP_DOMAIN, OP_TYPE, overload, graph=graph, attributes=attributes)


def positional_inputs(signature: AttentionSignature) -> tuple[str, ...]:
    """Names of the inputs a node passes by position, up to the last one that is present."""
    last = max(INPUT_NAMES.index(name) for name in signature.inputs)
    return INPUT_NAMES[: last + 1]


def _named_output(tape: BodyTape, name: str, value: ir.Value) -> ir.Value:
    """Gives a result its name; one that is an input or has a name already gets an Identity."""
    if value.producer() is None or value.name in ("output", "present_key", "present_value"):
        value = tape.op("Identity", value)
    value.name = name
    return value


def _attribute_type(value: float | str) -> ir.AttributeType:
    if isinstance(value, str):
        return ir.AttributeType.STRING
    return ir.AttributeType.INT if isinstance(value, int) else ir.AttributeType.FLOAT
