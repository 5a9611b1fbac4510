"""The reference: against the operator written out in loops, and on rows worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, AttentionCase, attention_cases
from hypothesis import given, settings
from naive_attention import naive_attention
from torch.nn import functional

from qkexport.errors import InvalidSpecError
from qkexport.reference import reference_attention, signature_of
from qkexport.signature import DType, TensorType
from qkexport.spec import AttentionSpec

INF, NAN = math.inf, math.nan


def _spec(**changes: Any) -> AttentionSpec:
    return AttentionSpec(**{"num_heads": 1, "num_kv_heads": 1, "scale": 1.0, **changes})


def _attend(
    spec: AttentionSpec,
    inputs: dict[str, torch.Tensor],
    compute_dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    return reference_attention(spec, inputs, compute_dtype=compute_dtype)["output"]


def _qkv(
    seqlen_q: int = 3, seqlen_kv: int = 3, head_dim: int = 4, heads: int = 1, batch: int = 1
) -> dict[str, torch.Tensor]:
    return {
        "query": torch.randn(batch, heads, seqlen_q, head_dim),
        "key": torch.randn(batch, heads, seqlen_kv, head_dim),
        "value": torch.randn(batch, heads, seqlen_kv, head_dim),
    }


def _indicator_values(seqlen: int) -> torch.Tensor:
    """Values that spell out the softmax weights: row j is the j-th unit vector."""
    return torch.eye(seqlen).reshape(1, 1, seqlen, seqlen)


def _seen(spec: AttentionSpec, inputs: dict[str, torch.Tensor]) -> list[list[list[int]]]:
    """For each batch entry and query: the keys that have any weight."""
    weights = _attend(spec, inputs)[:, 0]
    return [[row.nonzero()[:, 0].tolist() for row in rows] for rows in weights]


def _split(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    if x.dim() == 4:
        return x
    batch_size, seqlen, width = x.shape
    return x.reshape(batch_size, seqlen, num_heads, width // num_heads).transpose(1, 2)


@settings(CASES, max_examples=500)
@given(attention_cases())
def test_every_structure_agrees_with_the_operator_written_out_in_loops(case: AttentionCase) -> None:
    spec = case.spec
    computed = reference_attention(spec, case.inputs, outputs=ALL_OUTPUTS)
    arrays = {name: x.numpy() for name, x in case.inputs.items()}
    for name in ("query", "key", "value"):
        num_heads = spec.num_heads if name == "query" else spec.num_kv_heads
        arrays[name] = _split(case.inputs[name], num_heads).numpy()
    expected = naive_attention(spec, arrays)
    output = _split(computed["output"], spec.num_heads)
    for name, x in {**computed, "output": output}.items():
        np.testing.assert_allclose(x.numpy(), expected[name], rtol=1e-9, atol=1e-11, err_msg=name)


@settings(CASES, max_examples=60)
@given(attention_cases())
def test_float32_stays_within_rounding_of_the_exact_answer(case: AttentionCase) -> None:
    exact = reference_attention(case.spec, case.inputs, outputs=ALL_OUTPUTS)
    computed = reference_attention(
        case.spec, case.inputs, compute_dtype=torch.float32, outputs=ALL_OUTPUTS
    )
    for name, x in computed.items():
        assert x.dtype == torch.float32
        torch.testing.assert_close(x.double(), exact[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_contract_returns_the_tensor_type_and_the_oracle_float64(dtype: torch.dtype) -> None:
    inputs = {name: x.to(dtype) for name, x in _qkv().items()}
    contract = reference_attention(
        _spec(), inputs, compute_dtype=torch.float32, outputs=ALL_OUTPUTS
    )
    oracle = reference_attention(_spec(), inputs, outputs=ALL_OUTPUTS)
    assert {x.dtype for x in contract.values()} == {dtype}
    assert {x.dtype for x in oracle.values()} == {torch.float64}


# Norms worked out by hand, read off the present keys.


def _first_channel(key: torch.Tensor, compute_dtype: torch.dtype, **attributes: Any) -> float:
    """The first channel of the first normalized key."""
    spec = _spec(**attributes)
    present = reference_attention(
        spec,
        {"query": key, "key": key, "value": key},
        compute_dtype=compute_dtype,
        outputs=ALL_OUTPUTS,
    )["present_key"]
    return float(present[0, 0, 0, 0])


@pytest.mark.parametrize("compute_dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("qk_norm", "expected"),
    [
        ("rms", 3 / math.sqrt((9 + 16 + 0 + 1) / 4)),
        ("l2", 3 / math.sqrt(9 + 16 + 0 + 1)),
        ("layer", (3 + 0.5) / math.sqrt((3.5**2 + 3.5**2 + 0.5**2 + 0.5**2) / 4)),
    ],
)
def test_norms_of_3_minus4_0_minus1(
    qk_norm: str, expected: float, compute_dtype: torch.dtype
) -> None:
    query = torch.tensor([3.0, -4.0, 0.0, -1.0]).reshape(1, 1, 1, 4)
    first = _first_channel(query, compute_dtype, qk_norm=qk_norm, qk_norm_epsilon=0.0)
    assert first == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("qk_norm", "expected"), [("rms", 1.0), ("l2", 0.5)])
def test_squares_that_overflow_half_precision_do_not_spoil_the_norm(
    dtype: torch.dtype, qk_norm: str, expected: float
) -> None:
    query = torch.full((1, 1, 1, 4), 300.0, dtype=dtype)
    assert _first_channel(query, torch.float32, qk_norm=qk_norm) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_l2_clamps_a_zero_row_to_zeros_in_every_type(dtype: torch.dtype) -> None:
    query = torch.zeros(1, 1, 1, 4, dtype=dtype)
    first = _first_channel(query, torch.float32, qk_norm="l2", qk_norm_epsilon=1e-12)
    assert first == 0.0


def test_l2_divides_short_vectors_by_the_floor_and_long_ones_by_their_length() -> None:
    query = torch.tensor([0.3, 0.0, 0.4, 0.0]).reshape(1, 1, 1, 4)
    floor = {"qk_norm": "l2", "qk_norm_epsilon": 2.0}
    assert _first_channel(query, torch.float64, **floor) == pytest.approx(0.15)
    floor["qk_norm_epsilon"] = 0.25
    assert _first_channel(query, torch.float64, **floor) == pytest.approx(0.6)


def test_float16_keeps_a_tiny_row_that_a_float16_clamp_would_lose() -> None:
    query = torch.full((1, 1, 1, 4), 6e-8, dtype=torch.float16)  # the smallest float16
    assert _first_channel(query, torch.float32, qk_norm="l2", qk_norm_epsilon=1e-12) == 0.5


def test_zero_queries_attend_evenly() -> None:
    inputs = {**_qkv(seqlen_kv=3), "value": _indicator_values(3)}
    inputs["query"] = torch.zeros(1, 1, 1, 4)
    inputs["key"] = torch.randn(1, 1, 3, 4)
    torch.testing.assert_close(_attend(_spec(), inputs)[0, 0, 0], torch.full((3,), 1 / 3).double())


def test_before_weight_rounds_before_and_after_the_gain() -> None:
    """float16(100 / 3) is 33.34375, but float16(1/3) is 0.33325195: 33.3252, rounds to 33.3125."""
    query = torch.tensor([1.0, 2.0, 2.0, 0.0], dtype=torch.float16).reshape(1, 1, 1, 4)
    inputs = {"query": query, "key": query, "value": query}
    inputs["k_norm_weight"] = torch.full((4,), 100.0)
    first = {}
    for rounding in ("after_weight", "before_weight"):
        spec = _spec(qk_norm="l2", norm_rounding=rounding)
        present = reference_attention(
            spec, inputs, compute_dtype=torch.float32, outputs=ALL_OUTPUTS
        )["present_key"]
        first[rounding] = float(present[0, 0, 0, 0])
    assert first == {"after_weight": 33.34375, "before_weight": 33.3125}


def _half_precision_rope() -> tuple[AttentionSpec, dict[str, torch.Tensor]]:
    inputs = {name: x.half() for name, x in _qkv(seqlen_q=59, seqlen_kv=59, head_dim=8).items()}
    inputs |= {"cos_cache": torch.randn(1, 59, 4), "sin_cache": torch.randn(1, 59, 4)}
    return _spec(rotary="after_norm"), inputs


def test_the_norm_is_rounded_before_it_is_rotated_and_the_rotation_again() -> None:
    spec, inputs = _half_precision_rope()
    x = inputs["key"].float()
    normalized = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).half().float()
    first, second = normalized.chunk(2, -1)
    cos, sin = inputs["cos_cache"], inputs["sin_cache"]
    expected = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).half()
    present = reference_attention(spec, inputs, compute_dtype=torch.float32, outputs=ALL_OUTPUTS)[
        "present_key"
    ]
    assert (present == expected).float().mean() > 0.99  # sums may round the other way
    torch.testing.assert_close(present, expected, rtol=1e-3, atol=1e-3)


def test_queries_meet_keys_as_the_cache_stores_them() -> None:
    """Attending to the keys that came out of the cache gives the same bits."""
    spec, inputs = _half_precision_rope()
    first = reference_attention(spec, inputs, compute_dtype=torch.float32, outputs=ALL_OUTPUTS)
    stored = {**inputs, "key": first["present_key"]}
    again = _attend(_spec(rotary="after_norm", normalize_key=0), stored, torch.float32)
    torch.testing.assert_close(again, first["output"], rtol=0, atol=0)


def test_the_oracle_ignores_rounding() -> None:
    inputs = {name: x.half() for name, x in _qkv().items()}
    before, after = (
        _attend(_spec(norm_rounding=rounding), inputs)
        for rounding in ("before_weight", "after_weight")
    )
    torch.testing.assert_close(before, after, rtol=0, atol=0)


# Which keys a query sees. With value rows as unit vectors the output spells the weights.


def _masked_inputs(seqlen_q: int, seqlen_past: int, seqlen_kv: int) -> dict[str, torch.Tensor]:
    total = seqlen_past + seqlen_kv
    values = _indicator_values(total)
    return {
        "query": torch.randn(1, 1, seqlen_q, total),
        "key": torch.randn(1, 1, seqlen_kv, total),
        "value": values[:, :, seqlen_past:],
        "past_key": torch.randn(1, 1, seqlen_past, total),
        "past_value": values[:, :, :seqlen_past],
    }


SEEN = {
    "upper left starts at the past": (
        {"causal": "upper_left"},
        [[0, 1, 2], [0, 1, 2, 3]],
    ),
    "lower right ends at the last key": (
        {"causal": "lower_right"},
        [[0, 1, 2, 3], [0, 1, 2, 3, 4]],
    ),
    "left window of one": (
        {"causal": "lower_right", "window_left": 1},
        [[2, 3], [3, 4]],
    ),
    "windows without causal use the past": (
        {"window_left": 1, "window_right": 0},
        [[1, 2], [2, 3]],
    ),
    "right window": ({"window_right": 1}, [[0, 1, 2, 3], [0, 1, 2, 3, 4]]),
    "right window under causal adds nothing": (
        {"causal": "upper_left", "window_right": 2},
        [[0, 1, 2], [0, 1, 2, 3]],
    ),
    "window of the own position": (
        {"causal": "upper_left", "window_left": 0},
        [[2], [3]],
    ),
}


@pytest.mark.parametrize(("attributes", "expected"), SEEN.values(), ids=SEEN)
def test_a_query_sees_through_causal_and_windows(
    attributes: dict[str, Any], expected: list[list[int]]
) -> None:
    """Past 2, two queries, three new keys: five keys in all."""
    assert _seen(_spec(**attributes), _masked_inputs(2, 2, 3)) == [expected]


def test_lower_right_with_more_queries_than_keys_leaves_the_first_rows_empty() -> None:
    inputs = {**_qkv(seqlen_q=4, seqlen_kv=2, head_dim=2), "value": _indicator_values(2)}
    assert _seen(_spec(causal="lower_right"), inputs) == [[[], [], [0], [0, 1]]]
    assert not _attend(_spec(causal="lower_right"), inputs)[0, 0, :2].any()


def test_kv_lengths_hide_the_padding_and_move_the_lower_right_corner() -> None:
    inputs = {**_qkv(2, 4, 4), "value": _indicator_values(4)}
    inputs = {name: x.expand(5, -1, -1, -1) for name, x in inputs.items()}
    inputs["kv_lengths"] = torch.tensor([4, 3, 1, -7, 99])
    assert _seen(_spec(), inputs) == [
        [[0, 1, 2, 3]] * 2,
        [[0, 1, 2]] * 2,
        [[0]] * 2,
        [[]] * 2,
        [[0, 1, 2, 3]] * 2,
    ]
    assert _seen(_spec(causal="lower_right"), inputs) == [
        [[0, 1, 2], [0, 1, 2, 3]],
        [[0, 1], [0, 1, 2]],
        [[], [0]],
        [[], []],
        [[0, 1, 2], [0, 1, 2, 3]],
    ]
    assert _seen(_spec(causal="upper_left"), inputs)[2] == [[0], [0]]


def test_a_bool_mask_and_minus_infinity_hide_keys_but_a_huge_negative_number_does_not() -> None:
    inputs = {**_qkv(2, 3, 3), "value": _indicator_values(3)}
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert _seen(_spec(), {**inputs, "attn_mask": mask}) == [[[0, 2], []]]
    additive = torch.zeros(2, 3).masked_fill(~mask, -INF)
    assert _seen(_spec(), {**inputs, "attn_mask": additive}) == [[[0, 2], []]]
    lowest = torch.zeros(2, 3).masked_fill(~mask, torch.finfo(torch.float32).min)
    assert _seen(_spec(), {**inputs, "attn_mask": lowest}) == [[[0, 2], [0, 1, 2]]]


def test_a_mask_of_fewer_batches_repeats_in_turn() -> None:
    inputs = {**_qkv(1, 2, 2), "value": _indicator_values(2)}
    inputs = {name: x.expand(4, -1, -1, -1) for name, x in inputs.items()}
    mask = torch.tensor([[True, False], [False, True]]).reshape(2, 1, 1, 2)
    assert _seen(_spec(), {**inputs, "attn_mask": mask}) == [[[0]], [[1]], [[0]], [[1]]]


def test_softcap_comes_before_the_mask() -> None:
    """A mask of -1000 would be -5 after the cap and leave weight behind."""
    inputs = {**_qkv(1, 2, 2), "value": _indicator_values(2)}
    mask = torch.tensor([[0.0, -1000.0]])
    assert _seen(_spec(softcap=5.0), {**inputs, "attn_mask": mask}) == [[[0]]]


def test_softcap_bends_the_scaled_score() -> None:
    query = torch.tensor([2.0, 0.0]).reshape(1, 1, 1, 2)
    key = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).reshape(1, 1, 2, 2)
    spec = _spec(qk_norm="l2", scale=3.0, softcap=2.0)
    inputs = {"query": query, "key": key, "value": _indicator_values(2)}
    weights = _attend(spec, inputs)[0, 0, 0]
    odds = math.exp(2.0 * math.tanh(3.0 / 2.0))
    torch.testing.assert_close(weights[0] / weights[1], torch.tensor(odds).double())


# The cache.


def test_a_static_cache_takes_new_rows_before_its_length() -> None:
    past = torch.arange(5.0).reshape(1, 1, 5, 1).expand(4, -1, -1, -1)
    new = torch.tensor([70.0, 80.0]).reshape(1, 1, 2, 1).expand(4, -1, -1, -1)
    spec = _spec(kv_cache="static", normalize_key=0)
    inputs = {"query": new, "key": new, "value": -new, "past_key": past, "past_value": -past}
    inputs["kv_lengths"] = torch.tensor([2, 5, 1, 77])
    present = reference_attention(spec, inputs, outputs=ALL_OUTPUTS)
    rows = present["present_key"][:, 0, :, 0].tolist()
    assert rows[0] == [70, 80, 2, 3, 4]
    assert rows[1] == [0, 1, 2, 70, 80]
    assert rows[2] == [80, 1, 2, 3, 4]  # the row before the buffer falls off
    assert rows[3] == rows[1]  # lengths clamp to the buffer
    torch.testing.assert_close(present["present_value"], -present["present_key"])


def test_a_static_cache_without_new_rows_stays_as_it_is() -> None:
    inputs = {
        **_qkv(2, 0),
        "past_key": torch.randn(1, 1, 3, 4),
        "past_value": torch.randn(1, 1, 3, 4),
    }
    inputs["kv_lengths"] = torch.tensor([2])
    spec = _spec(kv_cache="static", causal="lower_right")
    present = reference_attention(spec, inputs, outputs=ALL_OUTPUTS)
    torch.testing.assert_close(present["present_key"], inputs["past_key"].double())


@pytest.mark.parametrize("kv_cache", ["concat", "static"])
def test_token_by_token_decoding_repeats_the_prefill(kv_cache: str) -> None:
    spec = _spec(num_heads=4, num_kv_heads=2, causal="lower_right", rotary="after_norm")
    cos, sin = torch.randn(5, 4), torch.randn(5, 4)
    query, key, value = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    positions = torch.arange(5)[None]
    rope = {"cos_cache": cos, "sin_cache": sin}
    prefill = {"query": query, "key": key, "value": value, "position_ids": positions}
    whole = _attend(spec, {**prefill, **rope})
    rows = 0 if kv_cache == "concat" else 6
    step_spec = _spec(
        num_heads=4,
        num_kv_heads=2,
        causal="lower_right",
        rotary="after_norm",
        kv_cache=kv_cache,
    )
    past_key = past_value = torch.zeros(1, 2, rows, 8)
    for t in range(5):
        inputs = {
            "query": query[:, :, t : t + 1],
            "key": key[:, :, t : t + 1],
            "value": value[:, :, t : t + 1],
            **rope,
            "position_ids": positions[:, t : t + 1],
            "past_key": past_key,
            "past_value": past_value,
        }
        if kv_cache == "static":
            inputs["kv_lengths"] = torch.tensor([t + 1])
        step = reference_attention(step_spec, inputs, outputs=ALL_OUTPUTS)
        # The cache is stored as float32, so it is rounded once on the way.
        torch.testing.assert_close(step["output"][:, :, 0], whole[:, :, t], rtol=1e-5, atol=1e-6)
        past_key, past_value = step["present_key"].float(), step["present_value"].float()


def test_segments_take_the_gain_row_of_the_ends_they_have_passed() -> None:
    """Ends 1, 1, 3 and five tokens: rows 0, 2, 2, then 2 again for want of a fourth."""
    key = torch.ones(1, 1, 5, 2)
    inputs = {
        "query": key,
        "key": key,
        "value": key,
        "segment_ends": torch.tensor([1, 1, 3]),
        "k_norm_weight": torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
        "k_norm_bias": torch.tensor([[0.0, 10.0], [0.0, 20.0], [0.0, 30.0]]),
    }
    spec = _spec(qk_norm_epsilon=0.0)
    present = reference_attention(spec, inputs, outputs=ALL_OUTPUTS)["present_key"][0, 0]
    assert present[:, 0].tolist() == [1, 3, 3, 3, 3]
    assert present[:, 1].tolist() == [11, 33, 33, 33, 33]


# Containment and empty sizes.


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("hide", ["causal", "bool", "additive", "lengths", "window"])
@pytest.mark.parametrize("target", ["key", "value"])
@pytest.mark.parametrize("compute_dtype", [torch.float64, torch.float32])
def test_what_a_row_may_not_see_does_not_reach_it(
    poison: float, hide: str, target: str, compute_dtype: torch.dtype
) -> None:
    clean = _qkv(seqlen_q=3, seqlen_kv=3, head_dim=4)
    poisoned = dict(clean)
    poisoned[target] = clean[target].clone()
    poisoned[target][0, 0, 2, 1] = poison
    spec, extra = {
        "causal": (_spec(causal="upper_left"), {}),
        "bool": (_spec(), {"attn_mask": torch.tensor([True, True, False])}),
        "additive": (_spec(), {"attn_mask": torch.tensor([0.0, 0.0, -INF])}),
        "lengths": (_spec(), {"kv_lengths": torch.tensor([2])}),
        "window": (_spec(window_right=0), {}),
    }[hide]
    rows = 2 if hide in ("causal", "window") else 3
    expected = _attend(spec, {**clean, **extra}, compute_dtype)
    output = _attend(spec, {**poisoned, **extra}, compute_dtype)
    torch.testing.assert_close(output[:, :, :rows], expected[:, :, :rows], rtol=0, atol=0)
    assert rows == 3 or not output[:, :, 2].isfinite().all()


def test_infinite_values_follow_ieee_rules_where_they_are_seen() -> None:
    inputs = _qkv(seqlen_q=1, seqlen_kv=3, head_dim=4)
    inputs["value"][0, 0, 0, 0] = INF
    inputs["value"][0, 0, 1, 1] = -INF
    inputs["value"][0, 0, :2, 2] = torch.tensor([INF, -INF])
    output = _attend(_spec(), inputs)[0, 0, 0]
    assert output[:2].tolist() == [INF, -INF]
    assert output[2].isnan()
    assert output[3].isfinite()


def test_scores_of_minus_infinity_hide_their_key_as_they_do_in_pytorch() -> None:
    ones = torch.ones(1, 1, 1, 1)
    inputs = {"query": ones, "key": -INF * ones, "value": ones}
    spec = _spec(qk_norm="l2", normalize_key=0)
    pytorch = functional.scaled_dot_product_attention(ones, -INF * ones, ones, scale=1.0)
    assert _attend(spec, inputs).item() == pytorch.item() == 0.0


def test_a_nan_query_spoils_its_own_row_only() -> None:
    inputs = _qkv()
    inputs["query"][0, 0, 1, 0] = NAN
    output = _attend(_spec(), inputs)[0, 0]
    assert output.isnan().all(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(
    ("batch_size", "seqlen_q", "seqlen_kv", "seqlen_past"),
    [(0, 2, 2, 0), (2, 0, 3, 0), (2, 3, 0, 0), (2, 3, 0, 2), (0, 0, 0, 0), (1, 0, 0, 4)],
)
def test_empty_sizes_give_empty_outputs_or_zeros(
    batch_size: int, seqlen_q: int, seqlen_kv: int, seqlen_past: int, rank: int
) -> None:
    def projection(seqlen: int) -> torch.Tensor:
        x = torch.randn(batch_size, seqlen, 2 * 4)
        return x if rank == 3 else _split(x, 2)

    inputs = {
        "query": projection(seqlen_q),
        "key": projection(seqlen_kv),
        "value": projection(seqlen_kv),
        "past_key": torch.randn(batch_size, 2, seqlen_past, 4),
        "past_value": torch.randn(batch_size, 2, seqlen_past, 4),
    }
    spec = _spec(num_heads=2, num_kv_heads=2)
    computed = reference_attention(spec, inputs, outputs=ALL_OUTPUTS)
    assert computed["output"].shape == inputs["query"].shape
    total = seqlen_past + seqlen_kv
    assert computed["present_key"].shape == (batch_size, 2, total, 4)
    if total == 0:
        assert not computed["output"].any()


# Refusals.


@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_outside_the_cache_is_refused(position: int) -> None:
    cache = torch.randn(4, 2)
    inputs = {**_qkv(), "cos_cache": cache, "sin_cache": cache}
    inputs["position_ids"] = torch.tensor([[0, position, 3]])
    with pytest.raises(InvalidSpecError) as refusal:
        _attend(_spec(rotary="after_norm"), inputs)
    assert f"position_ids must lie in [0, 4), got {position}." in str(refusal.value)


def test_another_compute_type_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="must be float64 or float32, got torch"):
        _attend(_spec(), _qkv(), torch.float16)


def test_a_tensor_type_the_operator_does_not_know_is_refused() -> None:
    inputs = {name: x.to(torch.int32) for name, x in _qkv().items()}
    with pytest.raises(InvalidSpecError) as refusal:
        _attend(_spec(), inputs)
    assert "query must have a type the operator knows, got torch.int32." in str(refusal.value)
    assert refusal.value.note == "known types: float32, float16, bfloat16, bool, int64."


def test_float64_tensors_have_an_exact_answer_but_no_contract() -> None:
    inputs = _qkv()
    wide = {name: x.double() for name, x in inputs.items()}
    torch.testing.assert_close(_attend(_spec(), wide), _attend(_spec(), inputs), rtol=0, atol=0)
    with pytest.raises(InvalidSpecError, match=r"must have a type the operator knows, got torch"):
        _attend(_spec(), wide, torch.float32)


def test_the_signature_of_tensors_has_their_types_and_shapes() -> None:
    signature = signature_of(_spec(), {name: x.half() for name, x in _qkv().items()})
    assert signature.inputs["query"] == TensorType(DType.FLOAT16, (1, 1, 3, 4))


# Gradients.


@settings(CASES, max_examples=15)
@given(attention_cases(min_size=1))
def test_gradients_are_those_of_finite_differences(case: AttentionCase) -> None:
    # Away from zero scores: the slope of an L2 norm has a kink where its floor begins.
    wide = {name: x.double() if x.is_floating_point() else x for name, x in case.inputs.items()}
    leaves = {name: x.requires_grad_() for name, x in wide.items() if x.is_floating_point()}

    def attend(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = {**wide, **dict(zip(leaves, tensors, strict=True))}
        return tuple(reference_attention(case.spec, inputs, outputs=ALL_OUTPUTS).values())

    assert torch.autograd.gradcheck(attend, tuple(leaves.values()), fast_mode=True)


@settings(CASES, max_examples=20)
@given(attention_cases(min_size=1))
def test_gradients_are_finite_even_where_rows_see_nothing(case: AttentionCase) -> None:
    leaves = {
        name: x.clone().requires_grad_() if x.is_floating_point() else x
        for name, x in case.inputs.items()
    }
    output = reference_attention(case.spec, leaves)["output"]
    output.square().sum().backward()  # type: ignore[no-untyped-call]
    for name, x in leaves.items():
        assert x.grad is None or x.grad.isfinite().all(), name
