"""Rules about RoPE: the rotary dim, the caches and the position ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qkexport.signature.refusal import error
from qkexport.signature.types import Dim, Shape, broadcasts, differ, fits, shape_text
from qkexport.spec import Rotary

if TYPE_CHECKING:
    from qkexport.signature.attention import AttentionSignature


def check(signature: AttentionSignature) -> None:
    """Refuses caches that do not cover the tokens, heads and channels they rotate."""
    spec, dims = signature.spec, signature.dims
    if spec.rotary is Rotary.NONE:
        return
    if dims.rotary_dim is not None and dims.rotary_dim % 2:
        raise error("rotary_dim must be even", dims.rotary_dim)
    if dims.head_dim is not None and spec.rotary_dim > dims.head_dim:
        raise error(f"rotary_dim must not exceed head_dim {dims.head_dim}", spec.rotary_dim)
    _check_caches(signature, "", dims.seqlen_q, spec.num_heads)
    if signature.has("key_cos_cache"):
        _check_caches(signature, "key_", dims.seqlen_kv, spec.num_kv_heads)
    elif spec.normalize_key:
        _check_shared_cache(signature)
    if signature.has("position_ids"):
        _check_position_ids(signature)


def _check_caches(signature: AttentionSignature, prefix: str, rows: Dim, num_heads: int) -> None:
    cos, sin = signature.inputs[f"{prefix}cos_cache"], signature.inputs[f"{prefix}sin_cache"]
    if cos.dtype is not sin.dtype or not fits(cos.shape, sin.shape):
        rule = f"{prefix}cos_cache and {prefix}sin_cache must have one type and shape"
        raise error(rule, f"{cos} and {sin}")
    if cos.rank not in (2, 3, 4):
        raise error(f"{prefix}cos_cache must have rank 2 to 4", cos)
    if cos.rank == 2:
        _check_indexed_cache(signature, prefix, rows)
    else:
        _check_cache_of_tokens(signature, prefix, rows, num_heads)
    width, rotary_dim = cos.shape[-1], signature.dims.rotary_dim
    if rotary_dim is not None and differ(width, rotary_dim) and differ(width, rotary_dim // 2):
        raise error(f"{prefix}cos_cache must be {rotary_dim // 2} or {rotary_dim} wide", cos)


def _check_indexed_cache(signature: AttentionSignature, prefix: str, rows: Dim) -> None:
    cos = signature.inputs[f"{prefix}cos_cache"]
    if not signature.has("position_ids"):
        note = "without position_ids a cache has one row a token."
        raise error(f"{prefix}cos_cache of rank 2 needs position_ids", cos, note)
    if differ(signature.dims.seqlen_q, rows):
        rule = "key_cos_cache of rank 2 needs Sq == Skv"
        raise error(rule, f"{signature.dims.seqlen_q} and {rows}")


def _check_cache_of_tokens(
    signature: AttentionSignature, prefix: str, rows: Dim, num_heads: int
) -> None:
    cos = signature.inputs[f"{prefix}cos_cache"]
    leading: Shape = (signature.dims.batch_size, num_heads, rows)
    if cos.rank == 3:
        leading = (leading[0], rows)
    if not broadcasts(cos.shape[:-1], leading) or differ(cos.shape[-2], rows):
        rule = f"{prefix}cos_cache must be {shape_text((*leading, None))}"
        raise error(rule, cos, "its batch and heads may also be 1.")


def _check_shared_cache(signature: AttentionSignature) -> None:
    """Keys turn with the queries' caches when they have none of their own."""
    dims, cos = signature.dims, signature.inputs["cos_cache"]
    if differ(dims.seqlen_q, dims.seqlen_kv):
        rule = "needs key_cos_cache when query and key lengths differ"
        raise error(rule, f"{dims.seqlen_q} and {dims.seqlen_kv}")
    heads = cos.shape[1] if cos.rank == 4 else 1
    if differ(heads, 1) and differ(heads, signature.spec.num_kv_heads):
        rule = "needs key_cos_cache when cos_cache has an entry for each query head"
        raise error(rule, f"{cos} for {signature.spec.num_kv_heads} key/value heads")


def _check_position_ids(signature: AttentionSignature) -> None:
    positions = signature.inputs["position_ids"]
    target = (signature.dims.batch_size, signature.dims.seqlen_q)
    one_a_token = positions.rank == 2 and not differ(positions.shape[1], target[1])
    if not one_a_token or not broadcasts(positions.shape, target):
        rule = f"position_ids must be {shape_text(target)}"
        raise error(rule, positions, "its batch may also be 1.")
    caches = [name for name in ("cos_cache", "key_cos_cache") if signature.has(name)]
    if all(signature.inputs[name].rank != 2 for name in caches):
        rule = "position_ids needs a cos_cache of rank 2"
        raise error(rule, signature.inputs["cos_cache"])
