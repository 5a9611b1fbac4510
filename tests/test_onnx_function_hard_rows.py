"""Rows that have bitten others: bodies give the contract's answer in stock ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from attention_cases import AttentionCase
from attention_model import assert_like_reference, run_body

from qkexport.spec import AttentionSpec

# Primitives only, all three fused operators, and fused operators without Attention.
OPSETS = (17, 20, 23, 24, 25)

pytestmark = pytest.mark.parametrize("opset", OPSETS)


def _case(
    spec: dict[str, Any] | None = None,
    *,
    batch_size: int = 2,
    seqlen_q: int = 5,
    seqlen_kv: int = 5,
    dtype: torch.dtype = torch.float32,
    more: Mapping[str, torch.Tensor] | None = None,
    **inputs: torch.Tensor,
) -> AttentionCase:
    """Four heads on two, D 8, rank 4, without gains."""
    attributes = {"num_heads": 4, "num_kv_heads": 2, "scale": 0.35, **(spec or {})}
    projections = {
        "query": torch.randn(batch_size, 4, seqlen_q, 8).to(dtype),
        "key": torch.randn(batch_size, 2, seqlen_kv, 8).to(dtype),
        "value": torch.randn(batch_size, 2, seqlen_kv, 8).to(dtype),
    }
    return AttentionCase(AttentionSpec(**attributes), {**projections, **(more or {}), **inputs})


def _output(case: AttentionCase, opset: int, *, dynamic: bool = False) -> torch.Tensor:
    results = run_body(case, opset, dynamic=dynamic)
    assert_like_reference(case, results)
    return results["output"]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["bool", "-inf"])
def test_rows_that_see_nothing_are_zero(opset: int, kind: str, dynamic: bool) -> None:
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[1, 0, 3] = False
    additive = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    output = _output(_case(attn_mask=mask if kind == "bool" else additive), opset, dynamic=dynamic)
    assert (output[1, :, 3] == 0).all()
    assert (output[0, :, 3] != 0).all()


@pytest.mark.parametrize(("causal", "num_seen"), [("none", 5), ("upper_left", 3)])
def test_a_row_of_large_finite_masks_is_an_average_of_what_it_sees(
    opset: int, causal: str, num_seen: int
) -> None:
    mask = torch.zeros(5, 5)
    mask[2] = torch.finfo(torch.float32).min
    case = _case({"causal": causal}, attn_mask=mask)
    output = _output(case, opset)
    average = case.inputs["value"][:, :, :num_seen].mean(2).repeat_interleave(2, 1)
    torch.testing.assert_close(output[:, :, 2], average)


def test_lower_right_queries_before_the_first_key_are_zero(opset: int) -> None:
    output = _output(_case({"causal": "lower_right"}, seqlen_q=7, seqlen_kv=3), opset)
    assert (output[:, :, :4] == 0).all()
    assert (output[:, :, 4:] != 0).any(-1).all()


def test_a_window_beyond_the_last_key_sees_nothing(opset: int) -> None:
    output = _output(_case({"window_left": 1}, seqlen_q=7, seqlen_kv=3), opset)
    assert (output[:, :, 4:] == 0).all()


@pytest.mark.parametrize("kind", ["rms", "layer", "l2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_zero_vectors_stay_finite(opset: int, dtype: torch.dtype, kind: str) -> None:
    case = _case({"qk_norm": kind, "qk_norm_epsilon": 1e-12}, dtype=dtype)
    case.inputs["query"][:, :, 1] = 0
    case.inputs["key"][:, :, 2] = 0
    assert _output(case, opset).isfinite().all()


@pytest.mark.parametrize("kind", ["rms", "layer", "l2"])
def test_float16_squares_do_not_overflow(opset: int, kind: str) -> None:
    case = _case({"qk_norm": kind}, dtype=torch.float16)
    for name in ("query", "key"):
        case.inputs[name] = torch.where(case.inputs[name] > 0, 300.0, -290.0).to(torch.float16)
    output = _output(case, opset)
    assert output.isfinite().all()
    assert (output != 0).any(-1).all()


def test_a_learned_temperature_of_100_keeps_float16_accurate(opset: int) -> None:
    spec = {"qk_norm": "l2", "qk_norm_epsilon": 1e-12, "scale": 1.0}
    _output(_case(spec, dtype=torch.float16, head_scale=torch.full((4,), 100.0)), opset)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("table", [False, True])
def test_one_rotary_row_serves_every_batch_entry(opset: int, table: bool, dynamic: bool) -> None:
    shape = (11, 4) if table else (1, 5, 4)
    caches = {"cos_cache": torch.randn(shape), "sin_cache": torch.randn(shape)}
    if table:
        caches["position_ids"] = torch.tensor([[3, 0, 10, 10, 7]])
    _output(_case({"rotary": "after_norm"}, batch_size=3, more=caches), opset, dynamic=dynamic)


@pytest.mark.parametrize("position", [-1, 11])
def test_a_position_outside_the_cache_is_an_error(opset: int, position: int) -> None:
    caches = {"cos_cache": torch.randn(11, 4), "sin_cache": torch.randn(11, 4)}
    ids = torch.tensor([[3, 0, position, 10, 7]])
    case = _case({"rotary": "after_norm"}, position_ids=ids, more=caches)
    with pytest.raises(Exception, match="out of data bounds"):
        run_body(case, opset)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(
    "sizes", [(0, 5, 5), (2, 0, 5), (2, 5, 0), (0, 0, 0)], ids=["B=0", "Sq=0", "T=0", "all"]
)
def test_empty_tensors_give_empty_or_zero_outputs(
    opset: int, sizes: tuple[int, int, int], rank: int
) -> None:
    batch_size, seqlen_q, seqlen_kv = sizes
    case = _case(
        {"causal": "upper_left"}, batch_size=batch_size, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv
    )
    if rank == 3:
        for name in ("query", "key", "value"):
            x = case.inputs[name]
            case.inputs[name] = x.transpose(1, 2).reshape(batch_size, x.shape[2], x.shape[1] * 8)
    results = run_body(case, opset, presents=True, dynamic=True)
    assert_like_reference(case, results)
    assert (results["output"] == 0).all()


def test_an_empty_batch_may_have_an_empty_mask(opset: int) -> None:
    case = _case(batch_size=0, attn_mask=torch.ones(0, 1, 5, 5, dtype=torch.bool))
    assert _output(case, opset, dynamic=True).shape == (0, 4, 5, 8)


@pytest.mark.parametrize("dynamic", [False, True])
def test_lengths_are_clamped_to_the_keys_there_are(opset: int, dynamic: bool) -> None:
    lengths = torch.tensor([-3, 0, 2, 99])
    output = _output(_case(batch_size=4, kv_lengths=lengths), opset, dynamic=dynamic)
    assert (output[:2] == 0).all()


@pytest.mark.parametrize("dynamic", [False, True])
def test_lengths_shift_a_lower_right_triangle(opset: int, dynamic: bool) -> None:
    case = _case({"causal": "lower_right"}, kv_lengths=torch.tensor([5, 3]))
    output = _output(case, opset, dynamic=dynamic)
    assert (output[1, :, :2] == 0).all(), "queries before the first key"
    first = case.inputs["value"][1, :, 0].repeat_interleave(2, 0)
    torch.testing.assert_close(output[1, :, 2], first)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_mask_of_fewer_windows_is_read_round_robin(opset: int, dynamic: bool) -> None:
    mask = torch.rand(3, 1, 5, 5) > 0.4
    case = _case(batch_size=6, attn_mask=mask)
    output = _output(case, opset, dynamic=dynamic)
    whole = AttentionCase(case.spec, {**case.inputs, "attn_mask": mask.repeat(2, 1, 1, 1)})
    torch.testing.assert_close(output, _output(whole, opset))


@pytest.mark.parametrize("lengths", [[4, 9], [2, 0], [1, 12], [-99, 99]])
def test_a_static_cache_takes_the_rows_that_fit(opset: int, lengths: list[int]) -> None:
    past = {name: torch.randn(2, 2, 9, 8) for name in ("past_key", "past_value")}
    spec = {"causal": "lower_right", "kv_cache": "static"}
    case = _case(spec, seqlen_q=4, seqlen_kv=4, kv_lengths=torch.tensor(lengths), more=past)
    for dynamic in (False, True):
        assert_like_reference(case, run_body(case, opset, presents=True, dynamic=dynamic))


def test_more_new_rows_than_a_static_cache_has_leave_the_last_ones(opset: int) -> None:
    past = {name: torch.randn(2, 2, 3, 8) for name in ("past_key", "past_value")}
    case = _case({"kv_cache": "static"}, kv_lengths=torch.tensor([3, 2]), more=past)
    for dynamic in (False, True):
        assert_like_reference(case, run_body(case, opset, presents=True, dynamic=dynamic))


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_scales_that_attention_refuses_are_honoured(opset: int, scale: float) -> None:
    _output(_case({"scale": scale}), opset)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 5), (5, 1), (2, 1, 1, 5), (4, 5, 5)])
def test_masks_of_every_rank_are_broadcast(opset: int, shape: tuple[int, ...]) -> None:
    _output(_case(attn_mask=torch.randn(shape)), opset)
    _output(_case(attn_mask=torch.randn(shape) > -0.5), opset, dynamic=True)
