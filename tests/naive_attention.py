"""The operator once more, one number at a time: no broadcasting, no batching, no shared code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from qkexport.spec import AttentionSpec

Array = np.ndarray[Any, np.dtype[Any]]


def naive_attention(spec: AttentionSpec, inputs: dict[str, Array]) -> dict[str, Array]:
    """All outputs in float64; an attention of rank 4 is expected and returned."""
    query, key, value = (inputs[name].astype(np.float64) for name in ("query", "key", "value"))
    rows_q = _prepared(spec, inputs, "q", query)
    rows_k = _prepared(spec, inputs, "k", key) if spec.normalize_key else key
    keys, values = _present(spec, inputs, rows_k, value)
    batch_size, num_heads, seqlen_q, _ = query.shape
    output = np.zeros((batch_size, num_heads, seqlen_q, value.shape[3]))
    for b, h, i in np.ndindex(batch_size, num_heads, seqlen_q):
        kv_head = h // (spec.num_heads // spec.num_kv_heads)
        scores = {
            j: _score(spec, inputs, rows_q[b, h, i], keys[b, kv_head, j], (b, h, i, j))
            for j in range(keys.shape[2])
            if _sees(spec, inputs, b, i, j, seqlen_q, keys.shape[2])
        }
        scores = {j: s for j, s in scores.items() if s != -math.inf}
        top = max(scores.values(), default=0.0)
        total = sum(math.exp(s - top) for s in scores.values())
        for j, s in scores.items():
            output[b, h, i] += math.exp(s - top) / total * values[b, kv_head, j]
    return {"output": output, "present_key": keys, "present_value": values}


def _prepared(spec: AttentionSpec, inputs: dict[str, Array], side: str, x: Array) -> Array:
    """Step 1 and 2 of every vector."""
    steps: list[Callable[[Array], Array]] = [lambda y: _normalized(spec, inputs, side, y)]
    if spec.rotary == "after_norm":
        steps.append(lambda y: _rotated(spec, inputs, side, y))
    if spec.rotary == "before_norm":
        steps.insert(0, lambda y: _rotated(spec, inputs, side, y))
    for step in steps:
        x = step(x)
    return x


def _normalized(spec: AttentionSpec, inputs: dict[str, Array], side: str, x: Array) -> Array:
    y = np.empty_like(x)
    batch_size, num_heads, seqlen, head_dim = x.shape
    for b, h, s in np.ndindex(batch_size, num_heads, seqlen):
        over = x[b, h, s] if spec.norm_axis == "head" else x[b, :, s].ravel()
        mean = sum(over) / len(over)
        for d in range(head_dim):
            v = x[b, h, s, d]
            if spec.qk_norm == "rms":
                n = v / math.sqrt(sum(over**2) / len(over) + spec.qk_norm_epsilon)
            elif spec.qk_norm == "layer":
                variance = sum((over - mean) ** 2) / len(over)
                n = (v - mean) / math.sqrt(variance + spec.qk_norm_epsilon)
            else:
                n = v / max(math.sqrt(sum(over**2)), spec.qk_norm_epsilon)
            weight = _parameter(spec, inputs, f"{side}_norm_weight", s, h, d, head_dim, 1.0)
            bias = _parameter(spec, inputs, f"{side}_norm_bias", s, h, d, head_dim, 0.0)
            y[b, h, s, d] = n * weight + bias
    return y


def _parameter(
    spec: AttentionSpec,
    inputs: dict[str, Array],
    name: str,
    s: int,
    h: int,
    d: int,
    head_dim: int,
    default: float,
) -> float:
    if name not in inputs:
        return default
    parameter = inputs[name]
    if "segment_ends" in inputs:
        ends = inputs["segment_ends"].tolist()
        parameter = parameter[min(len([e for e in ends if e <= s]), len(ends) - 1)]
    if spec.norm_axis == "hidden":
        return float(parameter[h * head_dim + d])
    return float(parameter[d] if parameter.ndim == 1 else parameter[h, d])


def _rotated(spec: AttentionSpec, inputs: dict[str, Array], side: str, x: Array) -> Array:
    y = x.copy()
    rotary_dim = spec.rotary_dim or x.shape[3]
    own = "key_" if side == "k" and "key_cos_cache" in inputs else ""
    for b, h, s in np.ndindex(*x.shape[:3]):
        cos = _cache_row(inputs, f"{own}cos_cache", b, h, s)
        sin = _cache_row(inputs, f"{own}sin_cache", b, h, s)
        for pair in range(rotary_dim // 2):
            first, second = pair, pair + rotary_dim // 2
            if spec.rotary_interleaved:
                first, second = 2 * pair, 2 * pair + 1
            c1, c2, s1, s2 = cos[pair], cos[pair], sin[pair], sin[pair]
            if len(cos) == rotary_dim:
                c1, c2, s1, s2 = cos[first], cos[second], sin[first], sin[second]
            x1, x2 = x[b, h, s, first], x[b, h, s, second]
            y[b, h, s, first] = x1 * c1 - x2 * s1
            y[b, h, s, second] = x2 * c2 + x1 * s2
    return y


def _cache_row(inputs: dict[str, Array], name: str, b: int, h: int, s: int) -> list[float]:
    cache = inputs[name]
    if cache.ndim == 2:
        positions = inputs["position_ids"]
        return list(cache[positions[b % positions.shape[0], s]].astype(float))
    if cache.ndim == 3:
        cache = cache[:, None]
    return list(cache[b % cache.shape[0], h % cache.shape[1], s].astype(float))


def _present(
    spec: AttentionSpec, inputs: dict[str, Array], key: Array, value: Array
) -> tuple[Array, Array]:
    if "past_key" not in inputs:
        return key, value
    past = [inputs[name].astype(np.float64) for name in ("past_key", "past_value")]
    if spec.kv_cache == "concat":
        return np.concatenate((past[0], key), 2), np.concatenate((past[1], value), 2)
    seqlen_kv, total = key.shape[2], past[0].shape[2]
    for b in range(key.shape[0]):
        end = _length(inputs, b, total)
        for new in range(seqlen_kv):
            row = end - seqlen_kv + new
            if 0 <= row < total:
                past[0][b, :, row] = key[b, :, new]
                past[1][b, :, row] = value[b, :, new]
    return past[0], past[1]


def _length(inputs: dict[str, Array], b: int, total: int) -> int:
    return max(0, min(int(inputs["kv_lengths"][b]), total))


def _sees(
    spec: AttentionSpec,
    inputs: dict[str, Array],
    b: int,
    i: int,
    j: int,
    seqlen_q: int,
    total: int,
) -> bool:
    if "kv_lengths" in inputs and j >= _length(inputs, b, total):
        return False
    if spec.causal == "lower_right":
        end = _length(inputs, b, total) if "kv_lengths" in inputs else total
        here = i + end - seqlen_q
    elif spec.kv_cache == "static" or "past_key" not in inputs:
        here = i
    else:
        here = i + inputs["past_key"].shape[2]
    if spec.causal != "none" and j > here:
        return False
    if spec.window_left != -1 and j < here - spec.window_left:
        return False
    return spec.window_right == -1 or j <= here + spec.window_right


def _score(
    spec: AttentionSpec,
    inputs: dict[str, Array],
    q: Array,
    k: Array,
    place: tuple[int, int, int, int],
) -> float:
    s = spec.scale * _head_scale(inputs, *place[:3]) * math.fsum(q * k)
    if spec.softcap:
        s = spec.softcap * math.tanh(s / spec.softcap)
    if "attn_mask" not in inputs:
        return s
    mask = inputs["attn_mask"]
    entry = mask[
        tuple(x % size for x, size in zip(place[4 - mask.ndim :], mask.shape, strict=True))
    ]
    if mask.dtype == bool:
        return s if entry else -math.inf
    return s + float(entry)


def _head_scale(inputs: dict[str, Array], b: int, h: int, i: int) -> float:
    if "head_scale" not in inputs:
        return 1.0
    scale = inputs["head_scale"]
    if scale.ndim == 1:
        return float(scale[h % len(scale)])
    place = (b, h, i, 0)[4 - scale.ndim :]
    return float(scale[tuple(x % size for x, size in zip(place, scale.shape, strict=True))])
