"""The reference against operators others wrote: PyTorch's, ONNX Runtime's and ONNX's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch.nn import functional

from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec

BATCH, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM_V = 2, 6, 3, 8, 5


def _spec(**changes: Any) -> AttentionSpec:
    return AttentionSpec(**{"num_heads": HEADS, "num_kv_heads": KV_HEADS, "scale": 0.25, **changes})


def _qkv(seqlen_q: int, seqlen_kv: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {
        "query": torch.randn(BATCH, HEADS, seqlen_q, HEAD_DIM).to(dtype),
        "key": torch.randn(BATCH, KV_HEADS, seqlen_kv, HEAD_DIM).to(dtype),
        "value": torch.randn(BATCH, KV_HEADS, seqlen_kv, HEAD_DIM_V).to(dtype),
    }


# PyTorch, in float64: nothing but the order of the sums differs.

NORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rms": lambda x: functional.rms_norm(x, x.shape[-1:], eps=0.25),
    "layer": lambda x: functional.layer_norm(x, x.shape[-1:], eps=0.25),
    "l2": lambda x: functional.normalize(x, dim=-1, eps=0.25),
}


@pytest.mark.parametrize("qk_norm", NORMS)
@pytest.mark.parametrize(("seqlen_q", "seqlen_kv"), [(1, 1), (59, 59), (7, 97), (97, 7)])
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "additive"])
def test_torch_norm_and_scaled_dot_product_attention(
    qk_norm: str, seqlen_q: int, seqlen_kv: int, mask: str
) -> None:
    inputs = _qkv(seqlen_q, seqlen_kv)
    arguments: dict[str, Any] = {"is_causal": mask == "causal"}
    if mask == "bool":
        inputs["attn_mask"] = torch.rand(BATCH, 1, seqlen_q, seqlen_kv) < 0.7
        inputs["attn_mask"][0, :, 0] = False
    if mask == "additive":
        inputs["attn_mask"] = torch.randn(HEADS, seqlen_q, seqlen_kv)
    if "attn_mask" in inputs:
        attn_mask = inputs["attn_mask"]
        arguments["attn_mask"] = attn_mask if mask == "bool" else attn_mask.double()
    query, key, value = (inputs[name].double() for name in ("query", "key", "value"))
    expected = functional.scaled_dot_product_attention(
        NORMS[qk_norm](query),
        NORMS[qk_norm](key),
        value,
        scale=0.25,
        enable_gqa=True,
        **arguments,
    )
    causal = "upper_left" if mask == "causal" else "none"
    spec = _spec(qk_norm=qk_norm, qk_norm_epsilon=0.25, causal=causal)
    output = reference_attention(spec, inputs)["output"]
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_contract_is_at_least_as_exact_as_pytorch_in_the_same_type(dtype: torch.dtype) -> None:
    inputs = _qkv(97, 59, dtype)
    spec = _spec(scale=1.0)
    exact = reference_attention(spec, inputs)["output"]
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    eager = functional.scaled_dot_product_attention(
        functional.rms_norm(query, (HEAD_DIM,), eps=1e-6),
        functional.rms_norm(key, (HEAD_DIM,), eps=1e-6),
        value,
        scale=1.0,
        enable_gqa=True,
    )
    contract = reference_attention(spec, inputs, compute_dtype=torch.float32)["output"]
    error = (contract.double() - exact).abs().max()
    assert error <= 2 * (eager.double() - exact).abs().max() + 2 * torch.finfo(dtype).tiny


# ONNX Runtime's Attention. Queries and keys reach it normalized by PyTorch in float64.


def _run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: list[Any] = session.run(None, feeds)
    return outputs


_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL,
}


def _model(
    op_type: str,
    inputs: Sequence[tuple[str, Any]],
    num_outputs: int,
    opset: int,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; an input of an empty name is absent."""
    names = [name for name, _ in inputs]
    outputs = [f"output{index}" for index in range(num_outputs)]
    node = helper.make_node(op_type, names, outputs, **attributes)
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(name, _TYPES[array.dtype], array.shape)
            for name, array in inputs
            if name
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def _ort_attention(inputs: dict[str, Any], opset: int, **attributes: Any) -> list[torch.Tensor]:
    order = ("query", "key", "value", "attn_mask", "past_key", "past_value", "kv_lengths")
    feeds = {name: inputs[name].numpy() for name in order if name in inputs}
    slots = [name if name in inputs else "" for name in order]
    while not slots[-1]:
        slots.pop()
    arrays = [(name, feeds.get(name)) for name in slots]
    num_outputs = 3 if "past_key" in inputs else 1
    model = _model("Attention", arrays, num_outputs, opset, **attributes)
    return [torch.from_numpy(x) for x in _run(model, feeds)]


def _normalized(inputs: dict[str, Any]) -> dict[str, Any]:
    normalized = {
        name: functional.rms_norm(inputs[name].double(), (HEAD_DIM,), eps=1e-6).float()
        for name in ("query", "key")
    }
    return {**inputs, **normalized}


ORT_CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "plain": ({}, {}, 0),
    "causal": ({"is_causal": 1}, {"causal": "upper_left"}, 0),
    "causal after a past": ({"is_causal": 1}, {"causal": "upper_left"}, 5),
    "softcap": ({"softcap": 2.0}, {"softcap": 2.0}, 0),
    "softcap and mask after a past": ({"softcap": 0.5}, {"softcap": 0.5}, 3),
}


@pytest.mark.parametrize(("attributes", "spec", "past"), ORT_CASES.values(), ids=ORT_CASES)
@pytest.mark.parametrize("mask", ["none", "additive", "bool"])
def test_onnx_runtime_attention(
    attributes: dict[str, Any], spec: dict[str, Any], past: int, mask: str
) -> None:
    seqlen = 7
    inputs = _qkv(seqlen, seqlen)
    if past:
        inputs["past_key"] = torch.randn(BATCH, KV_HEADS, past, HEAD_DIM)
        inputs["past_value"] = torch.randn(BATCH, KV_HEADS, past, HEAD_DIM_V)
    if mask == "additive":
        inputs["attn_mask"] = torch.randn(BATCH, 1, seqlen, seqlen + past)
    if mask == "bool":
        inputs["attn_mask"] = torch.rand(BATCH, 1, seqlen, seqlen + past) < 0.7
        inputs["attn_mask"][..., 0] = True
    expected = _ort_attention(_normalized(inputs), 23, scale=0.25, **attributes)
    outputs = ("output", "present_key", "present_value")
    computed = reference_attention(_spec(**spec), inputs, outputs=outputs)
    for name, x in zip(outputs, expected, strict=False):
        torch.testing.assert_close(computed[name].float(), x, rtol=1e-5, atol=1e-5)


def test_onnx_runtime_attention_on_rank_3() -> None:
    inputs = _qkv(7, 11)
    flat = {name: x.transpose(1, 2).flatten(2) for name, x in inputs.items()}
    normalized = _normalized(inputs)
    feeds = {name: x.transpose(1, 2).flatten(2) for name, x in normalized.items()}
    heads = {"q_num_heads": HEADS, "kv_num_heads": KV_HEADS}
    (expected,) = _ort_attention(feeds, 23, scale=0.25, **heads)
    output = reference_attention(_spec(), flat)["output"]
    torch.testing.assert_close(output.float(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_onnx_runtime_attention_over_padded_keys(causal: bool) -> None:
    """nonpad_kv_seqlen aligns the causal triangle with the last valid key."""
    inputs = _qkv(3, 9)
    inputs["kv_lengths"] = torch.tensor([9, 5])
    (expected,) = _ort_attention(_normalized(inputs), 24, scale=0.25, is_causal=int(causal))
    spec = _spec(causal="lower_right" if causal else "none")
    output = reference_attention(spec, inputs)["output"]
    torch.testing.assert_close(output.float(), expected, rtol=1e-5, atol=1e-5)


def test_onnx_runtime_tensor_scatter_fills_a_static_cache() -> None:
    inputs = _qkv(2, 2)
    buffers = torch.randn(BATCH, KV_HEADS, 6, HEAD_DIM), torch.randn(BATCH, KV_HEADS, 6, HEAD_DIM_V)
    inputs |= {"past_key": buffers[0], "past_value": buffers[1]}
    inputs["kv_lengths"] = torch.tensor([6, 3])
    new = {"past_key": _normalized(inputs)["key"], "past_value": inputs["value"]}
    write_at = (inputs["kv_lengths"] - 2).numpy()
    filled = []
    for cache, rows in new.items():
        feeds = {"past": inputs[cache].numpy(), "new": rows.numpy(), "write_at": write_at}
        model = _model("TensorScatter", list(feeds.items()), 1, 24, axis=-2)
        filled.append(_run(model, feeds)[0])
    outputs = ("output", "present_key", "present_value")
    computed = reference_attention(_spec(kv_cache="static"), inputs, outputs=outputs)
    for cache, x in zip(outputs[1:], filled, strict=True):
        torch.testing.assert_close(
            computed[cache].float(), torch.from_numpy(x), rtol=1e-5, atol=1e-6
        )


# ONNX's own evaluator, in float32.


def _evaluate(op_type: str, inputs: dict[str, Any], **attributes: Any) -> Any:
    model = _model(op_type, list(inputs.items()), 1, 25, **attributes)
    outputs: Any = ReferenceEvaluator(model).run(None, inputs)
    return outputs[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize(("left", "right"), [(-1, -1), (0, -1), (2, -1), (2, 0), (1, 3), (-1, 1)])
def test_onnx_attention_windows(causal: bool, past: int, left: int, right: int) -> None:
    inputs = _qkv(7, 9)
    if past:
        inputs["past_key"] = torch.randn(BATCH, KV_HEADS, past, HEAD_DIM)
        inputs["past_value"] = torch.randn(BATCH, KV_HEADS, past, HEAD_DIM_V)
    inputs["attn_mask"] = torch.rand(1, 1, 7, 9 + past) < 0.5
    order = ("query", "key", "value", "attn_mask", "past_key", "past_value")
    normalized = _normalized(inputs)
    feeds = {name: normalized[name].numpy() for name in order if name in inputs}
    attributes = {"left_window_size": left, "right_window_size": right}
    expected = _evaluate("Attention", feeds, scale=0.25, is_causal=int(causal), **attributes)
    spec = _spec(causal="upper_left" if causal else "none", window_left=left, window_right=right)
    output = reference_attention(spec, inputs)["output"]
    torch.testing.assert_close(output.float(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotary_dim", [0, 4])
@pytest.mark.parametrize("indexed", [False, True])
def test_onnx_rotary_embedding(interleaved: int, rotary_dim: int, indexed: bool) -> None:
    seqlen, width = 7, (rotary_dim or HEAD_DIM) // 2
    angles = torch.randn(*((50,) if indexed else (BATCH, seqlen)), width) * math.pi
    cache = {"cos_cache": angles.cos(), "sin_cache": angles.sin()}
    if indexed:
        cache["position_ids"] = torch.randint(0, 50, (BATCH, seqlen))
    key = torch.randn(BATCH, KV_HEADS, seqlen, HEAD_DIM)
    feeds = {"X": key.numpy(), **{name: x.numpy() for name, x in cache.items()}}
    rotated = _evaluate(
        "RotaryEmbedding", feeds, interleaved=interleaved, rotary_embedding_dim=rotary_dim
    )
    expected = functional.normalize(torch.from_numpy(rotated), dim=-1)
    query = torch.randn(BATCH, HEADS, seqlen, HEAD_DIM)
    spec = _spec(
        qk_norm="l2",
        qk_norm_epsilon=1e-12,
        rotary="before_norm",
        rotary_dim=rotary_dim,
        rotary_interleaved=bool(interleaved),
    )
    present = reference_attention(
        spec,
        {"query": query, "key": key, "value": key, **cache},
        outputs=("output", "present_key", "present_value"),
    )["present_key"]
    torch.testing.assert_close(present.float(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "qk_norm"), [("RMSNormalization", "rms"), ("LayerNormalization", "layer")]
)
@pytest.mark.parametrize("norm_axis", ["head", "hidden"])
def test_onnx_normalizations(op_type: str, qk_norm: str, norm_axis: str) -> None:
    key = torch.randn(BATCH, 7, KV_HEADS * HEAD_DIM)
    width = KV_HEADS * HEAD_DIM if norm_axis == "hidden" else HEAD_DIM
    weight = torch.randn(width)
    rows = key.reshape(BATCH, 7, -1, width)
    feeds = {"X": rows.numpy(), "scale": weight.numpy()}
    normalized = torch.from_numpy(_evaluate(op_type, feeds, axis=-1, epsilon=0.25))
    expected = normalized.reshape(BATCH, 7, KV_HEADS, HEAD_DIM).transpose(1, 2)
    spec = _spec(qk_norm=qk_norm, norm_axis=norm_axis, qk_norm_epsilon=0.25)
    inputs = {
        "query": torch.randn(BATCH, 7, HEADS * HEAD_DIM),
        "key": key,
        "value": key,
        "k_norm_weight": weight,
    }
    present = reference_attention(spec, inputs, outputs=("output", "present_key", "present_value"))[
        "present_key"
    ]
    torch.testing.assert_close(present.float(), expected, rtol=1e-5, atol=1e-6)
