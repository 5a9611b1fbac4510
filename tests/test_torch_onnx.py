"""torch.onnx writes the PyTorch op as one node that says everything."""

from __future__ import annotations

import warnings
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from qkexport.signature import INPUT_NAMES
from qkexport.spec import AttentionSpec
from qkexport.torch_op import onnx_translation_table, op_attributes

SPEC = AttentionSpec(
    num_heads=4,
    num_kv_heads=2,
    scale=0.3,
    rotary="after_norm",  # type: ignore[arg-type]
    rotary_dim=4,
    causal="lower_right",  # type: ignore[arg-type]
    norm_rounding="before_weight",  # type: ignore[arg-type]
    softcap=30.0,
)


class Attention(nn.Module):
    """The op on named inputs."""

    def __init__(self, spec: AttentionSpec, names: tuple[str, ...], with_cache: bool) -> None:
        super().__init__()
        self.attributes, self.names = op_attributes(spec), names
        ops = torch.ops.qkexport
        self.op = ops.qk_norm_attention_with_cache if with_cache else ops.qk_norm_attention

    def forward(self, *tensors: torch.Tensor) -> Any:
        inputs = dict(zip(self.names, tensors, strict=True))
        return self.op(*(inputs.get(name) for name in INPUT_NAMES), **self.attributes)


def _export(
    inputs: dict[str, torch.Tensor],
    shapes: dict[str, dict[int, str]],
    *,
    spec: AttentionSpec = SPEC,
    with_cache: bool = False,
    opset: int = 24,
) -> ir.Model:
    module = Attention(spec, tuple(inputs), with_cache).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.onnx calls what torch deprecates
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=(tuple(shapes.get(name, {}) for name in inputs),),
            custom_translation_table=onnx_translation_table(),
            verbose=False,
        )
    assert program is not None
    return program.model


def _node(model: ir.Model) -> ir.Node:
    (node,) = (node for node in model.graph if node.domain == "qkexport")
    assert node.op_type == "QKNormAttention"
    return node


def _qkv(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {
        "query": torch.randn(2, 5, 32).to(dtype),
        "key": torch.randn(2, 5, 16).to(dtype),
        "value": torch.randn(2, 5, 12).to(dtype),
        "cos_cache": torch.randn(1, 5, 2),
        "sin_cache": torch.randn(1, 5, 2),
    }


DYNAMIC = {
    **{name: {0: "batch", 1: "seqlen"} for name in ("query", "key", "value")},
    "cos_cache": {1: "seqlen"},
    "sin_cache": {1: "seqlen"},
}


@pytest.mark.parametrize("opset", [18, 23, 24])
def test_one_node_says_the_whole_spec(opset: int) -> None:
    model = _export(_qkv(), DYNAMIC, opset=opset)
    attributes = {name: attribute.value for name, attribute in _node(model).attributes.items()}
    assert attributes == SPEC.to_attributes()
    assert AttentionSpec.from_attributes(attributes) == SPEC
    assert dict(model.opset_imports) == {"": opset, "qkexport": 1}
    assert len(list(model.graph)) == 1


def test_attributes_left_at_their_defaults_are_written_too() -> None:
    class Bare(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.ops.qkexport.qk_norm_attention(
                x, x, x, num_heads=2, num_kv_heads=2, scale=1
            )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Bare(),
            (torch.randn(1, 3, 8),),
            dynamo=True,
            custom_translation_table=onnx_translation_table(),
            verbose=False,
        )
    assert program is not None
    attributes = {name: a.value for name, a in _node(program.model).attributes.items()}
    assert attributes == AttentionSpec(num_heads=2, num_kv_heads=2, scale=1.0).to_attributes()


def test_absent_inputs_keep_their_place_and_trailing_ones_are_left_off() -> None:
    inputs = {**_qkv(), "attn_mask": torch.randn(5, 5)}
    node = _node(_export(inputs, {}))
    names = [value.name if value else "" for value in node.inputs]
    present = {name for name, value in zip(INPUT_NAMES, names, strict=False) if value}
    assert present == set(inputs)
    assert len(names) == INPUT_NAMES.index("attn_mask") + 1


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float32, ir.DataType.FLOAT),
        (torch.float16, ir.DataType.FLOAT16),
        (torch.bfloat16, ir.DataType.BFLOAT16),
    ],
)
def test_the_output_has_a_type_and_a_shape(dtype: torch.dtype, expected: ir.DataType) -> None:
    (output,) = _node(_export(_qkv(dtype), DYNAMIC)).outputs
    assert output.dtype == expected
    assert str(output.shape) == "[batch,seqlen,24]"


def test_the_op_with_a_cache_has_three_outputs_with_types_and_shapes() -> None:
    inputs = {
        **_qkv(),
        "past_key": torch.randn(2, 2, 3, 8),
        "past_value": torch.randn(2, 2, 3, 6),
    }
    past = {name: {0: "batch", 2: "past"} for name in ("past_key", "past_value")}
    node = _node(_export(inputs, {**DYNAMIC, **past}, with_cache=True))
    assert [str(output.shape) for output in node.outputs] == [
        "[batch,seqlen,24]",
        "[batch,2,past + seqlen,8]",
        "[batch,2,past + seqlen,6]",
    ]
    assert {output.dtype for output in node.outputs} == {ir.DataType.FLOAT}
