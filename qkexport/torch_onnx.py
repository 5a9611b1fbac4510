"""How torch.onnx writes the PyTorch ops: one `qkexport::QKNormAttention` node each."""

from __future__ import annotations

from typing import Any, Final

import onnx
from onnxscript import values

from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES, REQUIRED_INPUTS
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, AttentionSpec

_Schema = onnx.defs.OpSchema
_OPSET: Final = values.Opset(OP_DOMAIN, OP_VERSION)

_ATTRIBUTE_TYPES: Final = {
    int: _Schema.AttrType.INT,
    float: _Schema.AttrType.FLOAT,
    str: _Schema.AttrType.STRING,
}

# The exporter asks a schema for names and counts only. Types are the signature's business, so each
# tensor has a type variable of its own that stands for whatever arrives.
_ANY_TYPE: Final = [
    "tensor(float)",
    "tensor(float16)",
    "tensor(bfloat16)",
    "tensor(bool)",
    "tensor(int64)",
]


def _parameter(name: str) -> _Schema.FormalParameter:
    required = name in REQUIRED_INPUTS or name in OUTPUT_NAMES
    option = _Schema.FormalParameterOption
    return _Schema.FormalParameter(
        name, f"T_{name}", param_option=option.Single if required else option.Optional
    )


def _op(outputs: tuple[str, ...]) -> values.Op:
    attributes = AttentionSpec(num_heads=1, num_kv_heads=1, scale=1.0).to_attributes()
    schema = _Schema(
        OP_TYPE,
        OP_DOMAIN,
        OP_VERSION,
        inputs=[_parameter(name) for name in INPUT_NAMES],
        outputs=[_parameter(name) for name in outputs],
        type_constraints=[(f"T_{name}", _ANY_TYPE, "") for name in (*INPUT_NAMES, *outputs)],
        attributes=[
            _Schema.Attribute(name, _ATTRIBUTE_TYPES[type(value)], required=True)
            for name, value in attributes.items()
        ],
    )
    return values.Op(_OPSET, OP_TYPE, schema)


_ONE_OUTPUT: Final = _op(OUTPUT_NAMES[:1])
_ALL_OUTPUTS: Final = _op(OUTPUT_NAMES)


def translate(*inputs: Any, **attributes: Any) -> Any:
    """`torch.ops.qkexport.qk_norm_attention` as a node with one output."""
    return _ONE_OUTPUT(*inputs, **AttentionSpec(**attributes).to_attributes())


def translate_with_cache(*inputs: Any, **attributes: Any) -> Any:
    """`torch.ops.qkexport.qk_norm_attention_with_cache` as a node with three outputs."""
    return _ALL_OUTPUTS(*inputs, **AttentionSpec(**attributes).to_attributes())
