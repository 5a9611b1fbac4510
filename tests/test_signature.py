"""Which tensors may meet in one node: every refusal, and what must not be refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from qkexport.errors import InvalidSpecError
from qkexport.signature import INPUT_NAMES, AttentionSignature, Dim, DType, TensorType
from qkexport.spec import AttentionSpec

# B 2, Sq 5, Skv 5, H 4, Hkv 2, D 8, Dv 6, P 3 unless a case says otherwise.
FLOAT32, FLOAT16, INT64, BOOL = DType.FLOAT32, DType.FLOAT16, DType.INT64, DType.BOOL


def _type(*shape: Dim, dtype: DType = FLOAT32) -> TensorType:
    return TensorType(dtype, shape)


QKV = {"query": _type(2, 5, 32), "key": _type(2, 5, 16), "value": _type(2, 5, 12)}
QKV4 = {"query": _type(2, 4, 5, 8), "key": _type(2, 2, 5, 8), "value": _type(2, 2, 5, 6)}
CROSS = {**QKV, "key": _type(2, 7, 16), "value": _type(2, 7, 12)}
PAST = {"past_key": _type(2, 2, 3, 8), "past_value": _type(2, 2, 3, 6)}
ROPE = {"cos_cache": _type(1, 5, 4), "sin_cache": _type(1, 5, 4)}
KEY_ROPE = {"key_cos_cache": _type(1, 5, 4), "key_sin_cache": _type(1, 5, 4)}
TABLE = {"cos_cache": _type(64, 4), "sin_cache": _type(64, 4)}
POSITIONS = {"position_ids": _type(2, 5, dtype=INT64)}
LENGTHS = {"kv_lengths": _type(2, dtype=INT64)}
SEGMENTS = {"segment_ends": _type(2, dtype=INT64)}

AFTER: dict[str, Any] = {"rotary": "after_norm"}


def _signature(
    inputs: dict[str, TensorType], *, outputs: tuple[str, ...] = ("output",), **attributes: Any
) -> AttentionSignature:
    spec = AttentionSpec(**{"num_heads": 4, "num_kv_heads": 2, "scale": 0.5, **attributes})
    return AttentionSignature(spec, inputs, outputs)


def _rope(*shape: Dim, prefix: str = "", dtype: DType = FLOAT32) -> dict[str, TensorType]:
    cache = _type(*shape, dtype=dtype)
    return {f"{prefix}cos_cache": cache, f"{prefix}sin_cache": cache}


REFUSED: dict[str, tuple[dict[str, TensorType], dict[str, Any], str]] = {
    "unknown input": ({**QKV, "bias": _type(1)}, {}, "has no input of that name, got 'bias'."),
    "no value": (
        {"query": QKV["query"], "key": QKV["key"]},
        {},
        "needs query, key and value, got ['query', 'key'].",
    ),
    "one present": (
        QKV,
        {"outputs": ("output", "present_key")},
        "outputs must be output alone or with both presents, got ('output', 'present_key').",
    ),
    "cos without sin": (
        {**QKV, "cos_cache": ROPE["cos_cache"]},
        AFTER,
        "needs both of cos_cache and sin_cache, got only cos_cache.",
    ),
    "key sin without key cos": (
        {**QKV, **ROPE, "key_sin_cache": ROPE["sin_cache"]},
        AFTER,
        "needs both of key_cos_cache and key_sin_cache, got only key_sin_cache.",
    ),
    "past key without past value": (
        {**QKV, "past_key": PAST["past_key"]},
        {},
        "needs both of past_key and past_value, got only past_key.",
    ),
    "rotary without caches": (
        QKV,
        AFTER,
        "needs cos_cache and sin_cache exactly when rotary is not 'none', got rotary 'after_norm'",
    ),
    "caches without rotary": (
        {**QKV, **ROPE},
        {},
        "needs cos_cache and sin_cache exactly when rotary is not 'none', got rotary 'none'",
    ),
    "position ids without rotary": (
        {**QKV, **POSITIONS},
        {},
        "takes position_ids only with rotary, got rotary 'none'.",
    ),
    "key caches without rotary": (
        {**QKV, **KEY_ROPE},
        {},
        "takes key_cos_cache only with rotary, got rotary 'none'.",
    ),
    "gain of keys that are not normalized": (
        {**QKV, "k_norm_weight": _type(8)},
        {"normalize_key": 0},
        "takes k_norm_weight only with normalize_key 1, got normalize_key 0.",
    ),
    "bias of keys that are not normalized": (
        {**QKV, "k_norm_bias": _type(8)},
        {"normalize_key": 0},
        "takes k_norm_bias only with normalize_key 1, got normalize_key 0.",
    ),
    "rotation of keys that are used as they are": (
        {**QKV, **ROPE, **KEY_ROPE},
        {**AFTER, "normalize_key": 0},
        "takes key_cos_cache only with normalize_key 1, got normalize_key 0.",
    ),
    "static cache without buffers": (
        {**QKV, **LENGTHS},
        {"kv_cache": "static"},
        "needs past_key, past_value and kv_lengths with a static cache, got",
    ),
    "static cache without lengths": (
        {**QKV, **PAST},
        {"kv_cache": "static"},
        "needs past_key, past_value and kv_lengths with a static cache, got",
    ),
    "integer query": (
        {**QKV, "query": _type(2, 5, 32, dtype=INT64)},
        {},
        "query must be float32, float16 or bfloat16, got int64.",
    ),
    "mixed types": (
        {**QKV, "key": _type(2, 5, 16, dtype=FLOAT16)},
        {},
        "key must be float32, got float16.",
    ),
    "value of another type": (
        {**QKV, "value": _type(2, 5, 12, dtype=FLOAT16)},
        {},
        "value must be float32, got float16.",
    ),
    "past of another type": (
        {**QKV, **PAST, "past_key": _type(2, 2, 3, 8, dtype=FLOAT16)},
        {},
        "past_key must be float32, got float16.",
    ),
    "half gain on float query": (
        {**QKV, "q_norm_weight": _type(8, dtype=FLOAT16)},
        {},
        "q_norm_weight must be float32, got float16.",
    ),
    "float lengths": (
        {**QKV, "kv_lengths": _type(2)},
        {},
        "kv_lengths must be int64, got float32.",
    ),
    "float position ids": (
        {**QKV, **TABLE, "position_ids": _type(2, 5)},
        AFTER,
        "position_ids must be int64, got float32.",
    ),
    "float segment ends": (
        {**QKV, "segment_ends": _type(2)},
        {},
        "segment_ends must be int64, got float32.",
    ),
    "integer mask": (
        {**QKV, "attn_mask": _type(5, 5, dtype=INT64)},
        {},
        "attn_mask must be bool or float32, got int64.",
    ),
    "half head scale": (
        {**QKV, "head_scale": _type(4, dtype=FLOAT16)},
        {},
        "head_scale must be float32, got float16.",
    ),
    "rank 2": (
        {**QKV, "query": _type(5, 32)},
        {},
        "query, key and value must share rank 3 or 4, got query float32[5,32].",
    ),
    "mixed ranks": (
        {**QKV, "key": QKV4["key"]},
        {},
        "query, key and value must share rank 3 or 4, got key float32[2,2,5,8].",
    ),
    "query heads": (
        {**QKV4, "query": _type(2, 3, 5, 8)},
        {},
        "query must have 4 heads on axis 1, got float32[2,3,5,8].",
    ),
    "key heads": (
        {**QKV4, "key": _type(2, 4, 5, 8)},
        {},
        "key must have 2 heads on axis 1, got float32[2,4,5,8].",
    ),
    "query width": (
        {**QKV, "query": _type(2, 5, 33)},
        {},
        "query width must be a multiple of its 4 heads, got float32[2,5,33].",
    ),
    "value width": (
        {**QKV, "value": _type(2, 5, 13)},
        {},
        "value width must be a multiple of its 2 heads, got float32[2,5,13].",
    ),
    "no channels": (
        {**QKV4, "value": _type(2, 2, 5, 0)},
        {},
        "value must have at least one channel a head, got float32[2,2,5,0].",
    ),
    "head dims": (
        {**QKV, "key": _type(2, 5, 20)},
        {},
        "head_dim of query and key must be equal, got 8 and 10.",
    ),
    "key batch": (
        {**QKV, "key": _type(3, 5, 16)},
        {},
        "query, key and value must have one batch size, got float32[2,5,32], float32[3,5,16] and",
    ),
    "value batch": (
        {**QKV, "value": _type(1, 5, 12)},
        {},
        "query, key and value must have one batch size, got float32[2,5,32], float32[2,5,16] and",
    ),
    "value batch where the query's is unknown": (
        {**QKV, "query": _type(None, 5, 32), "value": _type(1, 5, 12)},
        {},
        "query, key and value must have one batch size, got float32[?,5,32], float32[2,5,16] and",
    ),
    "value length": (
        {**QKV, "value": _type(2, 6, 12)},
        {},
        "key and value must be equally long, got float32[2,5,16] and float32[2,6,12].",
    ),
    "value length in rank 4": (
        {**QKV4, "value": _type(2, 2, 6, 6)},
        {},
        "key and value must be equally long, got float32[2,2,5,8] and float32[2,2,6,6].",
    ),
    "rank of segment ends": (
        {**QKV, "segment_ends": _type(1, 2, dtype=INT64)},
        {},
        "segment_ends must be [G] with at least one segment, got int64[1,2].",
    ),
    "no segments": (
        {**QKV, "segment_ends": _type(0, dtype=INT64)},
        {},
        "segment_ends must be [G] with at least one segment, got int64[0].",
    ),
    "segments of cross attention": (
        {**CROSS, **SEGMENTS},
        {},
        "segment_ends needs Sq == Skv, got 5 and 7.",
    ),
    "query gain": (
        {**QKV, "q_norm_weight": _type(32)},
        {},
        "q_norm_weight must be [8] or [4,8], got float32[32].",
    ),
    "key gain of query heads": (
        {**QKV, "k_norm_weight": _type(4, 8)},
        {},
        "k_norm_weight must be [8] or [2,8], got float32[4,8].",
    ),
    "query bias": (
        {**QKV, "q_norm_bias": _type(7)},
        {},
        "q_norm_bias must be [8] or [4,8], got float32[7].",
    ),
    "key bias": (
        {**QKV, "k_norm_bias": _type(2, 7)},
        {},
        "k_norm_bias must be [8] or [2,8], got float32[2,7].",
    ),
    "head gain on the hidden axis": (
        {**QKV, "q_norm_weight": _type(8)},
        {"norm_axis": "hidden"},
        "q_norm_weight must be [32], got float32[8].",
    ),
    "query width for the keys on the hidden axis": (
        {**QKV, "k_norm_weight": _type(32)},
        {"norm_axis": "hidden"},
        "k_norm_weight must be [16], got float32[32].",
    ),
    "segment gain without segments": (
        {**QKV, "q_norm_weight": _type(1, 4, 8)},
        {},
        "q_norm_weight must be [8] or [4,8], got float32[1,4,8].",
    ),
    "gain without its segments": (
        {**QKV, **SEGMENTS, "q_norm_weight": _type(8)},
        {},
        "q_norm_weight must be [2,8] or [2,4,8], got float32[8].",
    ),
    "mask rows": (
        {**QKV, "attn_mask": _type(4, 5)},
        {},
        "attn_mask must broadcast to [2,4,5,5], got float32[4,5].",
    ),
    "mask without the past": (
        {**QKV, **PAST, "attn_mask": _type(5, 5)},
        {},
        "attn_mask must broadcast to [2,4,5,8], got float32[5,5].",
    ),
    "mask of rank 5": (
        {**QKV, "attn_mask": _type(1, 2, 4, 5, 5)},
        {},
        "attn_mask must broadcast to [2,4,5,5], got float32[1,2,4,5,5].",
    ),
    "mask batch": (
        {**QKV, "attn_mask": _type(3, 1, 5, 5)},
        {},
        "attn_mask must broadcast to [2,4,5,5], got float32[3,1,5,5].",
    ),
    "mask of no batch": (
        {**QKV, "attn_mask": _type(0, 1, 5, 5)},
        {},
        "attn_mask must broadcast to [2,4,5,5], got float32[0,1,5,5].",
    ),
    "head scale of key heads": (
        {**QKV, "head_scale": _type(2)},
        {},
        "head_scale must be [1], [4] or broadcast to [2,4,5,1], got float32[2].",
    ),
    "head scale for each key": (
        {**QKV, "head_scale": _type(4, 5, 5)},
        {},
        "head_scale must be [1], [4] or broadcast to [2,4,5,1], got float32[4,5,5].",
    ),
    "past of rank 3": (
        {**QKV, **PAST, "past_key": _type(2, 3, 16)},
        {},
        "past_key must have rank 4, got float32[2,3,16].",
    ),
    "past heads": (
        {**QKV, **PAST, "past_key": _type(2, 4, 3, 8)},
        {},
        "past_key must be [2,2,3,8], got float32[2,4,3,8].",
    ),
    "past halves of unequal length": (
        {**QKV, **PAST, "past_value": _type(2, 2, 4, 6)},
        {},
        "past_value must be [2,2,3,6], got float32[2,2,4,6].",
    ),
    "past width": (
        {**QKV, **PAST, "past_value": _type(2, 2, 3, 8)},
        {},
        "past_value must be [2,2,3,6], got float32[2,2,3,8].",
    ),
    "lengths": (
        {**QKV, "kv_lengths": _type(1, dtype=INT64)},
        {},
        "kv_lengths must be [2], got int64[1].",
    ),
    "rotary dim over head dim": (
        {**QKV, **ROPE},
        {**AFTER, "rotary_dim": 10},
        "rotary_dim must not exceed head_dim 8, got 10.",
    ),
    "odd head dim rotated whole": (
        {
            "query": _type(2, 5, 36),
            "key": _type(2, 5, 18),
            "value": _type(2, 5, 12),
            **_rope(1, 5, 4),
        },
        AFTER,
        "rotary_dim must be even, got 9.",
    ),
    "cos and sin of two shapes": (
        {**QKV, "cos_cache": _type(1, 5, 4), "sin_cache": _type(2, 5, 4)},
        AFTER,
        "cos_cache and sin_cache must have one type and shape, got float32[1,5,4] and",
    ),
    "cos and sin of two types": (
        {
            **{name: _type(*tensor.shape, dtype=FLOAT16) for name, tensor in QKV.items()},
            "cos_cache": _type(1, 5, 4, dtype=FLOAT16),
            "sin_cache": _type(1, 5, 4),
        },
        AFTER,
        "cos_cache and sin_cache must have one type and shape, got float16[1,5,4] and",
    ),
    "cache of rank 1": ({**QKV, **_rope(4)}, AFTER, "cos_cache must have rank 2 to 4, got"),
    "table without position ids": (
        {**QKV, **TABLE},
        AFTER,
        "cos_cache of rank 2 needs position_ids, got float32[64,4].",
    ),
    "key table of cross attention": (
        {**CROSS, **TABLE, **POSITIONS, **_rope(64, 4, prefix="key_")},
        AFTER,
        "key_cos_cache of rank 2 needs Sq == Skv, got 5 and 7.",
    ),
    "cache rows": (
        {**QKV, **_rope(1, 6, 4)},
        AFTER,
        "cos_cache must be [2,5,?], got float32[1,6,4].",
    ),
    "one cache row for all tokens": (
        {**QKV, **_rope(1, 1, 4)},
        AFTER,
        "cos_cache must be [2,5,?], got float32[1,1,4].",
    ),
    "cache batch": (
        {**QKV, **_rope(3, 5, 4)},
        AFTER,
        "cos_cache must be [2,5,?], got float32[3,5,4].",
    ),
    "cache heads": (
        {**QKV, **_rope(1, 2, 5, 4), **_rope(1, 5, 4, prefix="key_")},
        AFTER,
        "cos_cache must be [2,4,5,?], got float32[1,2,5,4].",
    ),
    "key cache rows": (
        {**CROSS, **ROPE, **_rope(1, 5, 4, prefix="key_")},
        AFTER,
        "key_cos_cache must be [2,7,?], got float32[1,5,4].",
    ),
    "key cache heads": (
        {**QKV, **ROPE, **_rope(1, 4, 5, 4, prefix="key_")},
        AFTER,
        "key_cos_cache must be [2,2,5,?], got float32[1,4,5,4].",
    ),
    "cache width": (
        {**QKV, **_rope(1, 5, 6)},
        AFTER,
        "cos_cache must be 4 or 8 wide, got float32[1,5,6].",
    ),
    "cache width of a part": (
        {**QKV, **_rope(1, 5, 8)},
        {**AFTER, "rotary_dim": 4},
        "cos_cache must be 2 or 4 wide, got float32[1,5,8].",
    ),
    "cross attention with one pair of caches": (
        {**CROSS, **ROPE},
        AFTER,
        "needs key_cos_cache when query and key lengths differ, got 5 and 7.",
    ),
    "caches of query heads for fewer key heads": (
        {**QKV, **_rope(1, 4, 5, 4)},
        AFTER,
        "needs key_cos_cache when cos_cache has an entry for each query head, got float32[1,4,5,4]",
    ),
    "position ids of rank 1": (
        {**QKV, **TABLE, "position_ids": _type(5, dtype=INT64)},
        AFTER,
        "position_ids must be [2,5], got int64[5].",
    ),
    "position ids of another length": (
        {**QKV, **TABLE, "position_ids": _type(2, 1, dtype=INT64)},
        AFTER,
        "position_ids must be [2,5], got int64[2,1].",
    ),
    "position ids of another batch": (
        {**QKV, **TABLE, "position_ids": _type(3, 5, dtype=INT64)},
        AFTER,
        "position_ids must be [2,5], got int64[3,5].",
    ),
    "position ids that index nothing": (
        {**QKV, **ROPE, **POSITIONS},
        AFTER,
        "position_ids needs a cos_cache of rank 2, got float32[1,5,4].",
    ),
}


@pytest.mark.parametrize(("inputs", "attributes", "message"), REFUSED.values(), ids=REFUSED)
def test_tensors_that_break_the_contract_are_refused(
    inputs: dict[str, TensorType], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSpecError, match=f"^QKNormAttention {re.escape(message)}"):
        _signature(inputs, **attributes)


ACCEPTED: dict[str, tuple[dict[str, TensorType], dict[str, Any]]] = {
    "bare": (QKV, {}),
    "bare in rank 4": (QKV4, {}),
    "cross attention": (CROSS, {}),
    "gain of all heads": ({**QKV, "q_norm_weight": _type(8), "k_norm_weight": _type(8)}, {}),
    "gain of each head": ({**QKV4, "q_norm_weight": _type(4, 8), "k_norm_weight": _type(2, 8)}, {}),
    "gain of the whole width": (
        {**QKV4, "q_norm_weight": _type(32), "k_norm_weight": _type(16)},
        {"norm_axis": "hidden"},
    ),
    "segmented gains": (
        {**QKV, **SEGMENTS, "q_norm_weight": _type(2, 8), "k_norm_weight": _type(2, 2, 8)},
        {},
    ),
    "one segment": (
        {**QKV, "segment_ends": _type(1, dtype=INT64), "q_norm_weight": _type(1, 8)},
        {},
    ),
    "segmented gains of the whole width": (
        {**QKV, **SEGMENTS, "q_norm_weight": _type(2, 32), "k_norm_bias": _type(2, 16)},
        {"norm_axis": "hidden"},
    ),
    "segmented gains of unknown segments": (
        {**QKV, "segment_ends": _type(None, dtype=INT64), "q_norm_weight": _type(3, 8)},
        {},
    ),
    "float gain on half query": (
        {
            **{name: _type(*tensor.shape, dtype=FLOAT16) for name, tensor in QKV.items()},
            "q_norm_weight": _type(8),
        },
        {},
    ),
    "table": ({**QKV, **TABLE, **POSITIONS}, AFTER),
    "table with shared positions": (
        {**QKV, **TABLE, "position_ids": _type(1, 5, dtype=INT64)},
        AFTER,
    ),
    "table of full width": ({**QKV, **_rope(64, 8), **POSITIONS}, AFTER),
    "rows for the queries, a table for the keys": (
        {**QKV, **ROPE, **_rope(64, 4, prefix="key_"), **POSITIONS},
        AFTER,
    ),
    "rows of each batch entry": ({**QKV, **_rope(2, 5, 4)}, AFTER),
    "rows of each query head": (
        {**QKV, **_rope(1, 4, 5, 4), **_rope(1, 2, 5, 4, prefix="key_")},
        AFTER,
    ),
    "rows of each head without groups": (
        {**QKV4, "key": _type(2, 4, 5, 8), "value": _type(2, 4, 5, 8), **_rope(1, 4, 5, 4)},
        {**AFTER, "num_kv_heads": 4},
    ),
    "rows of each query head for keys used as they are": (
        {**QKV, **_rope(1, 4, 5, 4)},
        {**AFTER, "normalize_key": 0},
    ),
    "cross attention with two pairs of caches": (
        {**CROSS, **ROPE, **_rope(1, 7, 4, prefix="key_")},
        AFTER,
    ),
    "cross attention with keys used as they are": (
        {**CROSS, **ROPE},
        {**AFTER, "normalize_key": 0},
    ),
    "partial rotation": ({**QKV, **_rope(1, 5, 2)}, {**AFTER, "rotary_dim": 4}),
    "mask of one batch": ({**QKV, "attn_mask": _type(1, 1, 5, 5, dtype=BOOL)}, {}),
    "mask that repeats over the batch": (
        {
            "query": _type(6, 5, 32),
            "key": _type(6, 5, 16),
            "value": _type(6, 5, 12),
            "attn_mask": _type(3, 1, 5, 5),
        },
        {},
    ),
    "mask of one number": ({**QKV, "attn_mask": _type()}, {}),
    "mask of one row": ({**QKV, "attn_mask": _type(5, dtype=BOOL)}, {}),
    "one head scale": ({**QKV, "head_scale": _type(1)}, {}),
    "head scale of each head": ({**QKV, "head_scale": _type(4)}, {}),
    "head scale of each query": ({**QKV, "head_scale": _type(2, 1, 5, 1)}, {}),
    "head scale of rank 0": ({**QKV, "head_scale": _type()}, {}),
    "past": ({**QKV, **PAST}, {"outputs": ("output", "present_key", "present_value")}),
    "static cache": ({**QKV, **PAST, **LENGTHS}, {"kv_cache": "static"}),
    "empty past": (
        {**QKV, "past_key": _type(2, 2, 0, 8), "past_value": _type(2, 2, 0, 6)},
        {},
    ),
    "no batch, no query, no keys": (
        {"query": _type(0, 0, 32), "key": _type(0, 0, 16), "value": _type(0, 0, 12)},
        {},
    ),
    "nothing known": (
        {
            **dict.fromkeys(("query", "key", "value"), _type(None, None, None)),
            **dict.fromkeys(("past_key", "past_value"), _type(None, None, None, None)),
            **_rope(None, None),
            "position_ids": _type(None, None, dtype=INT64),
            "attn_mask": _type(None, None, None, None),
            "head_scale": _type(None),
            "kv_lengths": _type(None, dtype=INT64),
        },
        AFTER,
    ),
}


@pytest.mark.parametrize(("inputs", "attributes"), ACCEPTED.values(), ids=ACCEPTED)
def test_tensors_within_the_contract_are_accepted(
    inputs: dict[str, TensorType], attributes: dict[str, Any]
) -> None:
    assert _signature(inputs, **attributes).dtype in (FLOAT32, FLOAT16)


@pytest.mark.parametrize("qkv", [QKV, QKV4], ids=["rank 3", "rank 4"])
def test_dims_are_read_from_either_layout(qkv: dict[str, TensorType]) -> None:
    dims = _signature({**qkv, **PAST, **ROPE}, **AFTER).dims
    assert (dims.batch_size, dims.seqlen_q, dims.seqlen_kv) == (2, 5, 5)
    assert (dims.seqlen_past, dims.seqlen_total) == (3, 8)
    assert (dims.head_dim, dims.head_dim_v, dims.rotary_dim) == (8, 6, 8)
    assert dims.num_segments == 1


def test_a_static_cache_is_as_long_as_its_buffer() -> None:
    dims = _signature({**QKV, **PAST, **LENGTHS}, kv_cache="static").dims
    assert (dims.seqlen_kv, dims.seqlen_total) == (5, 3)


def test_dims_that_one_tensor_leaves_open_are_read_from_another() -> None:
    inputs = {
        "query": _type(None, None, None),
        "key": _type(None, None, 16),
        "value": _type(2, 7, 12),
        "segment_ends": _type(None, dtype=INT64),
    }
    dims = _signature(inputs).dims
    assert (dims.batch_size, dims.head_dim, dims.seqlen_kv, dims.seqlen_total) == (2, 8, 7, 7)
    assert (dims.seqlen_q, dims.num_segments, dims.rotary_dim) == (None, None, 0)


def test_rotary_dim_is_the_attribute_where_it_is_not_zero() -> None:
    assert _signature({**QKV, **_rope(1, 5, 2)}, **AFTER, rotary_dim=4).dims.rotary_dim == 4


def test_an_unknown_input_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        _signature({**QKV, "mask": _type(1)})
    assert refusal.value.note == ", ".join(INPUT_NAMES)
