"""Draws whole attentions, spec and inputs together, from everything the contract allows."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from qkexport.spec import (
    AttentionSpec,
    Causal,
    KvCache,
    NormAxis,
    NormRounding,
    QkNorm,
    Rotary,
)

# The same draws every time, however busy the machine is.
CASES = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
ALL_OUTPUTS = ("output", "present_key", "present_value")


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """One attention: spec, and inputs by name."""

    spec: AttentionSpec
    inputs: dict[str, torch.Tensor]

    def __repr__(self) -> str:
        shapes = {name: (x.dtype, tuple(x.shape)) for name, x in self.inputs.items()}
        return f"AttentionCase({self.spec}, {shapes})"


@dataclasses.dataclass(frozen=True)
class _Sizes:
    batch_size: int
    seqlen_q: int
    seqlen_kv: int
    seqlen_past: int
    seqlen_total: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    head_dim_v: int
    rotary_dim: int


@st.composite
def attention_cases(
    draw: st.DrawFn, dtype: torch.dtype = torch.float32, min_size: int = 0
) -> AttentionCase:
    """Attentions of every structure at small awkward sizes.

    Args:
        draw: Given by hypothesis.
        dtype: T of the inputs; gains, caches and float masks are now and then float32.
        min_size: Smallest batch, query and key length: 1, or 0 to include empty tensors.
    """
    spec, sizes = draw(_specs_and_sizes(min_size))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    side_dtype = draw(st.sampled_from([dtype, torch.float32]))

    def random(*shape: int, dtype: torch.dtype = side_dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    inputs = _projections(spec, sizes, random, dtype, draw(st.sampled_from([3, 4])))
    inputs |= draw(_norm_parameters(spec, sizes, random))
    inputs |= draw(_rotary_caches(spec, sizes, random))
    inputs |= draw(_masks(sizes, random))
    if draw(st.booleans()):
        inputs["head_scale"] = draw(_head_scales(sizes, random))
    if spec.kv_cache is KvCache.STATIC or draw(st.booleans()):
        lengths = st.integers(-1, sizes.seqlen_total + 1)
        values = [draw(lengths) for _ in range(sizes.batch_size)]
        inputs["kv_lengths"] = torch.tensor(values, dtype=torch.int64)
    return AttentionCase(spec, inputs)


@st.composite
def _specs_and_sizes(draw: st.DrawFn, min_size: int) -> tuple[AttentionSpec, _Sizes]:
    num_kv_heads = draw(st.sampled_from([1, 2, 3]))
    num_heads = num_kv_heads * draw(st.sampled_from([1, 2, 3]))
    rotary = draw(st.sampled_from(Rotary))
    head_dim = draw(st.sampled_from([4, 6, 8] if rotary is not Rotary.NONE else [1, 3, 8]))
    attribute_rotary_dim = draw(st.sampled_from([0, 2, 4])) if rotary is not Rotary.NONE else 0
    size = st.sampled_from([2, 3, 1, 4, 5] if min_size else [2, 3, 1, 4, 5, 0])
    seqlen_q, seqlen_kv, seqlen_past = draw(size), draw(size), draw(st.integers(0, 3))
    static = draw(st.booleans())
    if static:
        seqlen_past = draw(st.integers(seqlen_kv, seqlen_kv + 3))
    window = st.sampled_from([-1, 0, 1, 2])
    spec = AttentionSpec(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        scale=draw(st.sampled_from([1.0, 0.375, -0.5])),
        qk_norm=draw(st.sampled_from(QkNorm)),
        norm_axis=draw(st.sampled_from(NormAxis)),
        qk_norm_epsilon=draw(st.sampled_from([1e-12, 1e-6, 0.5])),
        norm_rounding=draw(st.sampled_from(NormRounding)),
        normalize_key=draw(st.booleans()),
        rotary=rotary,
        rotary_dim=attribute_rotary_dim,
        rotary_interleaved=draw(st.booleans()),
        causal=draw(st.sampled_from(Causal)),
        window_left=draw(window),
        window_right=draw(window),
        softcap=draw(st.sampled_from([0.0, 0.5, 30.0])),
        kv_cache=KvCache.STATIC if static else KvCache.CONCAT,
    )
    return spec, _Sizes(
        batch_size=draw(size),
        seqlen_q=seqlen_q,
        seqlen_kv=seqlen_kv,
        seqlen_past=seqlen_past,
        seqlen_total=seqlen_past if static else seqlen_past + seqlen_kv,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        head_dim_v=draw(st.sampled_from([1, 5, head_dim])),
        rotary_dim=attribute_rotary_dim or head_dim,
    )


def _projections(
    spec: AttentionSpec, sizes: _Sizes, random: Any, dtype: torch.dtype, rank: int
) -> dict[str, torch.Tensor]:
    def projection(seqlen: int, num_heads: int, head_dim: int) -> Any:
        if rank == 3:
            return random(sizes.batch_size, seqlen, num_heads * head_dim, dtype=dtype)
        return random(sizes.batch_size, num_heads, seqlen, head_dim, dtype=dtype)

    inputs = {
        "query": projection(sizes.seqlen_q, sizes.num_heads, sizes.head_dim),
        "key": projection(sizes.seqlen_kv, sizes.num_kv_heads, sizes.head_dim),
        "value": projection(sizes.seqlen_kv, sizes.num_kv_heads, sizes.head_dim_v),
    }
    if sizes.seqlen_past or spec.kv_cache is KvCache.STATIC:
        leading = (sizes.batch_size, sizes.num_kv_heads, sizes.seqlen_past)
        inputs["past_key"] = random(*leading, sizes.head_dim, dtype=dtype)
        inputs["past_value"] = random(*leading, sizes.head_dim_v, dtype=dtype)
    return inputs


@st.composite
def _norm_parameters(
    draw: st.DrawFn, spec: AttentionSpec, sizes: _Sizes, random: Any
) -> dict[str, torch.Tensor]:
    inputs: dict[str, torch.Tensor] = {}
    leading: tuple[int, ...] = ()
    if sizes.seqlen_q == sizes.seqlen_kv and draw(st.booleans()):
        ends = sorted(draw(st.lists(st.integers(0, sizes.seqlen_q), min_size=1, max_size=3)))
        inputs["segment_ends"] = torch.tensor(ends, dtype=torch.int64)
        leading = (len(ends),)
    sides = [("q", sizes.num_heads)]
    if spec.normalize_key:
        sides.append(("k", sizes.num_kv_heads))
    for side, num_heads in sides:
        shapes = [(sizes.head_dim,), (num_heads, sizes.head_dim)]
        if spec.norm_axis is NormAxis.HIDDEN:
            shapes = [(num_heads * sizes.head_dim,)]
        for kind in ("weight", "bias"):
            if draw(st.booleans()):
                shape = draw(st.sampled_from(shapes))
                inputs[f"{side}_norm_{kind}"] = random(*leading, *shape)
    return inputs


@st.composite
def _rotary_caches(
    draw: st.DrawFn, spec: AttentionSpec, sizes: _Sizes, random: Any
) -> dict[str, torch.Tensor]:
    if spec.rotary is Rotary.NONE:
        return {}
    width = draw(st.sampled_from([sizes.rotary_dim, sizes.rotary_dim // 2]))
    batch = draw(st.sampled_from([1, sizes.batch_size]))
    same_length = sizes.seqlen_q == sizes.seqlen_kv
    own_key_caches = spec.normalize_key and (not same_length or draw(st.booleans()))
    one_head_each = sizes.num_heads != sizes.num_kv_heads and not own_key_caches
    layouts = {
        "rows": (batch, sizes.seqlen_q, width),
        "shared heads": (batch, 1, sizes.seqlen_q, width),
        "heads": (batch, 1 if one_head_each else sizes.num_heads, sizes.seqlen_q, width),
        "table": (7, width),
    }
    layout = draw(st.sampled_from(sorted(layouts)))
    inputs = {name: random(*layouts[layout]) for name in ("cos_cache", "sin_cache")}
    if layout == "table":
        positions = [draw(st.integers(0, 6)) for _ in range(batch * sizes.seqlen_q)]
        ids = torch.tensor(positions, dtype=torch.int64).reshape(batch, sizes.seqlen_q)
        inputs["position_ids"] = ids
    if own_key_caches:
        shape = (batch, sizes.num_kv_heads, sizes.seqlen_kv, width)
        inputs |= {name: random(*shape) for name in ("key_cos_cache", "key_sin_cache")}
    return inputs


@st.composite
def _masks(draw: st.DrawFn, sizes: _Sizes, random: Any) -> dict[str, torch.Tensor]:
    kind = draw(st.sampled_from(["none", "bool", "additive", "additive with -inf"]))
    if kind == "none":
        return {}
    divisors = [n for n in range(1, sizes.batch_size + 1) if sizes.batch_size % n == 0]
    full = (
        draw(st.sampled_from(divisors or [1])),
        draw(st.sampled_from([1, sizes.num_heads])),
        draw(st.sampled_from([1, sizes.seqlen_q])),
        draw(st.sampled_from([1, sizes.seqlen_total])),
    )
    mask = random(*full[draw(st.integers(0, 4)) :])
    if kind == "bool":
        return {"attn_mask": mask > -0.5}
    if kind == "additive":
        return {"attn_mask": mask}
    return {"attn_mask": mask.masked_fill(mask < -0.5, -torch.inf)}


@st.composite
def _head_scales(draw: st.DrawFn, sizes: _Sizes, random: Any) -> torch.Tensor:
    shapes = [
        (),
        (1,),
        (sizes.num_heads,),
        (sizes.num_heads, 1, 1),
        (sizes.seqlen_q, 1),
        (sizes.batch_size, 1, sizes.seqlen_q, 1),
        (sizes.batch_size, sizes.num_heads, sizes.seqlen_q, 1),
    ]
    scale: torch.Tensor = random(*draw(st.sampled_from(shapes)), dtype=torch.float32)
    return scale
