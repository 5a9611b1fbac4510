"""Bodies for ONNX Runtime over the whole space of structures, opsets and tensor types."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
import torch
from attention_cases import AttentionCase, attention_cases
from attention_model import assert_like_reference, attention_model, case_signature, run_body
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.onnx_function import attention_function, lower
from qkexport.signature import AttentionSignature, DType, TensorType
from qkexport.spec import AttentionSpec, Causal, Rotary

OPSETS = range(17, 26)

_whole_space = given(
    data=st.data(), opset=st.sampled_from(OPSETS), presents=st.booleans(), dynamic=st.booleans()
)


def _settings(max_examples: int) -> settings:
    return settings(
        max_examples=max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def _check(
    dtype: torch.dtype, data: st.DataObject, opset: int, presents: bool, dynamic: bool
) -> None:
    case = data.draw(attention_cases(dtype))
    assert_like_reference(case, run_body(case, opset, presents=presents, dynamic=dynamic))


@_settings(200)
@_whole_space
def test_the_float32_body_gives_the_reference_answer(
    data: st.DataObject, opset: int, presents: bool, dynamic: bool
) -> None:
    _check(torch.float32, data, opset, presents, dynamic)


@_settings(100)
@_whole_space
def test_the_float16_body_gives_the_reference_answer(
    data: st.DataObject, opset: int, presents: bool, dynamic: bool
) -> None:
    _check(torch.float16, data, opset, presents, dynamic)


@_settings(60)
@_whole_space
def test_the_bfloat16_body_gives_the_reference_answer_without_bfloat16_kernels(
    data: st.DataObject, opset: int, presents: bool, dynamic: bool
) -> None:
    _check(torch.bfloat16, data, opset, presents, dynamic)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@_settings(4000)
@_whole_space
def test_bodies_give_the_reference_answer_at_length(
    dtype: torch.dtype, data: st.DataObject, opset: int, presents: bool, dynamic: bool
) -> None:
    _check(dtype, data, opset, presents, dynamic)


def _qwen3(seqlen: int = 59, head_dim: int = 24) -> AttentionCase:
    """Grouped heads, RMS norm, RoPE and a causal triangle at an awkward size."""
    spec = AttentionSpec(
        num_heads=6,
        num_kv_heads=2,
        scale=0.2,
        rotary=Rotary.AFTER_NORM,
        causal=Causal.UPPER_LEFT,
    )
    inputs = {
        "query": torch.randn(2, seqlen, 6 * head_dim),
        "key": torch.randn(2, seqlen, 2 * head_dim),
        "value": torch.randn(2, seqlen, 2 * head_dim),
        "q_norm_weight": torch.randn(head_dim),
        "k_norm_weight": torch.randn(head_dim),
        "cos_cache": torch.randn(1, seqlen, head_dim // 2),
        "sin_cache": torch.randn(1, seqlen, head_dim // 2),
    }
    return AttentionCase(spec, inputs)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("opset", OPSETS)
def test_a_language_model_s_attention_runs_at_every_opset(opset: int, dynamic: bool) -> None:
    case = _qwen3()
    assert_like_reference(case, run_body(case, opset, presents=True, dynamic=dynamic))


@pytest.mark.parametrize("seqlen_past", [0, 1, 111])
@pytest.mark.parametrize("seqlen", [1, 59, 97, 257])
@pytest.mark.parametrize("opset", [20, 24])
def test_a_language_model_s_attention_runs_at_awkward_lengths(
    opset: int, seqlen: int, seqlen_past: int
) -> None:
    case = _qwen3(seqlen, head_dim=80)
    past = {name: torch.randn(2, 2, seqlen_past, 80) for name in ("past_key", "past_value")}
    with_past = AttentionCase(case.spec, {**case.inputs, **past})
    assert_like_reference(with_past, run_body(with_past, opset, presents=True, dynamic=True))


def _op_types(function: ir.Function) -> set[str]:
    return {node.op_type for node in function.all_nodes()}


@pytest.mark.parametrize("dynamic", [False, True])
def test_fused_operators_are_used_from_opset_23_on(dynamic: bool) -> None:
    signature = case_signature(_qwen3(), presents=False, dynamic=dynamic)
    fused = {"RMSNormalization", "RotaryEmbedding", "Attention"}
    used = {opset: _op_types(lower(signature, "ort", opset)) & fused for opset in OPSETS}
    assert [used[opset] for opset in (22, 23, 24)] == [set(), fused, fused]
    # ONNX Runtime has no kernel for Attention 25 and expands it to something slow.
    assert used[25] == fused - {"Attention"}


def test_attention_is_not_used_where_a_size_is_known_to_be_zero() -> None:
    spec = AttentionSpec(num_heads=1, num_kv_heads=1, scale=1.0)
    inputs = {
        name: TensorType(DType.FLOAT32, (2, length, 8))
        for name, length in (("query", 0), ("key", 5), ("value", 5))
    }
    function = lower(AttentionSignature(spec, inputs), "ort", 24)
    assert not _op_types(function) & {"Attention", "If"}


@pytest.mark.parametrize("opset", OPSETS)
def test_bodies_are_valid_onnx(opset: int) -> None:
    signature = case_signature(_qwen3(), presents=True, dynamic=True)
    function = attention_function(signature, opset=opset, overload="qwen3")
    model = ir.to_proto(attention_model(signature, function, opset))
    onnx.checker.check_model(model, full_check=True)
    assert [node.domain for node in model.functions[0].node] == [""] * len(model.functions[0].node)


def test_a_function_declares_what_its_node_passes_absent_inputs_included() -> None:
    signature = case_signature(_qwen3(), presents=False, dynamic=False)
    function = attention_function(signature, opset=24)
    assert [value.name for value in function.inputs] == [
        *("query", "key", "value", "q_norm_weight", "k_norm_weight"),
        *("q_norm_bias", "k_norm_bias", "cos_cache", "sin_cache"),
    ]
    assert [value.name for value in function.outputs] == ["output"]


@pytest.mark.parametrize("opset", [16, 26])
def test_an_opset_out_of_range_is_refused(opset: int) -> None:
    signature = case_signature(_qwen3(), presents=False, dynamic=False)
    with pytest.raises(UnsupportedModelError, match=f"must be 17 to 25, got {opset}"):
        lower(signature, "ort", opset)


def test_an_unknown_runtime_is_refused() -> None:
    signature = case_signature(_qwen3(), presents=False, dynamic=False)
    with pytest.raises(UsageError, match=r"got 'tflite'.\nNote: accepted: 'ort', 'tensorrt'"):
        lower(signature, "tflite", 24)


def _with_unknown(name: str, *axes: int) -> AttentionSignature:
    signature = case_signature(_qwen3(), presents=False, dynamic=False)
    tensor = signature.inputs[name]
    shape = tuple(None if axis in axes else dim for axis, dim in enumerate(tensor.shape))
    return AttentionSignature(
        signature.spec, {**signature.inputs, name: TensorType(tensor.dtype, shape)}
    )


def test_a_dynamic_value_width_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="head_dim of value before run time"):
        lower(_with_unknown("value", 2), "ort", 24)


def test_a_dynamic_head_dim_is_refused() -> None:
    spec = AttentionSpec(num_heads=1, num_kv_heads=1, scale=1.0)
    tensor = TensorType(DType.FLOAT32, (None, None, None))
    signature = AttentionSignature(spec, dict.fromkeys(("query", "key", "value"), tensor))
    with pytest.raises(UnsupportedModelError, match="head_dim before run time"):
        lower(signature, "ort", 24)


def test_a_dynamic_cache_width_is_refused() -> None:
    signature = _with_unknown("cos_cache", 2)
    with pytest.raises(UnsupportedModelError, match="width of cos_cache"):
        lower(signature, "ort", 24)
