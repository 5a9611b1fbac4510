"""Rules about the shapes of all inputs but the rotary caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qkexport.signature.refusal import error
from qkexport.signature.types import (
    Dim,
    Shape,
    TensorType,
    broadcasts,
    differ,
    fits,
    shape_text,
)
from qkexport.spec import NormAxis

if TYPE_CHECKING:
    from qkexport.signature.attention import AttentionSignature


def check(signature: AttentionSignature) -> None:
    """Refuses shapes that do not belong together; unknown dimensions fit everything."""
    spec = signature.spec
    _check_projection(signature, "query", spec.num_heads)
    _check_projection(signature, "key", spec.num_kv_heads)
    _check_projection(signature, "value", spec.num_kv_heads)
    _check_sizes(signature)
    _check_segments(signature)
    for name in ("q_norm_weight", "q_norm_bias"):
        _check_norm_parameter(signature, name, spec.num_heads)
    for name in ("k_norm_weight", "k_norm_bias"):
        _check_norm_parameter(signature, name, spec.num_kv_heads)
    _check_mask(signature)
    _check_head_scale(signature)
    _check_past(signature, "past_key", signature.dims.head_dim)
    _check_past(signature, "past_value", signature.dims.head_dim_v)
    _check_lengths(signature)


def _check_projection(signature: AttentionSignature, name: str, num_heads: int) -> None:
    tensor = signature.inputs[name]
    if tensor.rank not in (3, 4) or tensor.rank != signature.rank:
        raise error("query, key and value must share rank 3 or 4", f"{name} {tensor}")
    if tensor.rank == 4 and differ(tensor.shape[1], num_heads):
        raise error(f"{name} must have {num_heads} heads on axis 1", tensor)
    width = tensor.shape[-1]
    if tensor.rank == 3 and width is not None and width % num_heads:
        raise error(f"{name} width must be a multiple of its {num_heads} heads", tensor)
    if width == 0:
        raise error(f"{name} must have at least one channel a head", tensor)


def _check_sizes(signature: AttentionSignature) -> None:
    query, key, value = (signature.inputs[name] for name in ("query", "key", "value"))
    if any(differ(tensor.shape[0], signature.dims.batch_size) for tensor in (key, value)):
        rule = "query, key and value must have one batch size"
        raise error(rule, f"{query}, {key} and {value}")
    row = 1 if signature.rank == 3 else 2
    if differ(key.shape[row], value.shape[row]):
        raise error("key and value must be equally long", f"{key} and {value}")
    widths = signature.head_dim_of("query"), signature.head_dim_of("key")
    if differ(*widths):
        raise error("head_dim of query and key must be equal", f"{widths[0]} and {widths[1]}")


def _check_segments(signature: AttentionSignature) -> None:
    if not signature.has("segment_ends"):
        return
    dims, ends = signature.dims, signature.inputs["segment_ends"]
    if ends.rank != 1 or ends.shape[0] == 0:
        raise error("segment_ends must be [G] with at least one segment", ends)
    if differ(dims.seqlen_q, dims.seqlen_kv):
        raise error("segment_ends needs Sq == Skv", f"{dims.seqlen_q} and {dims.seqlen_kv}")


def _check_norm_parameter(signature: AttentionSignature, name: str, num_heads: int) -> None:
    if not signature.has(name):
        return
    head_dim = signature.dims.head_dim
    width = None if head_dim is None else num_heads * head_dim
    shapes: list[Shape] = [(head_dim,), (num_heads, head_dim)]
    if signature.spec.norm_axis is NormAxis.HIDDEN:
        shapes = [(width,)]
    if signature.has("segment_ends"):
        shapes = [(signature.dims.num_segments, *shape) for shape in shapes]
    if not any(fits(signature.inputs[name].shape, shape) for shape in shapes):
        accepted = " or ".join(map(shape_text, shapes))
        raise error(f"{name} must be {accepted}", signature.inputs[name])


def _check_mask(signature: AttentionSignature) -> None:
    if not signature.has("attn_mask"):
        return
    dims, mask = signature.dims, signature.inputs["attn_mask"]
    target = (signature.spec.num_heads, dims.seqlen_q, dims.seqlen_total)
    if not broadcasts(mask.shape, (None, *target)) or not _repeats(mask, dims.batch_size):
        rule = f"attn_mask must broadcast to {shape_text((dims.batch_size, *target))}"
        raise error(rule, mask, "its batch may also be a divisor of the batch size.")


def _repeats(mask: TensorType, batch_size: Dim) -> bool:
    batch = mask.shape[0] if mask.rank == 4 else 1
    if batch is None or batch_size is None or batch == batch_size:
        return True
    return batch > 0 and batch_size % batch == 0


def _check_head_scale(signature: AttentionSignature) -> None:
    if not signature.has("head_scale"):
        return
    dims, scale = signature.dims, signature.inputs["head_scale"]
    num_heads = signature.spec.num_heads
    target = (dims.batch_size, num_heads, dims.seqlen_q, 1)
    if not fits(scale.shape, (num_heads,)) and not broadcasts(scale.shape, target):
        rule = f"head_scale must be [1], [{num_heads}] or broadcast to {shape_text(target)}"
        raise error(rule, scale)


def _check_past(signature: AttentionSignature, name: str, width: Dim) -> None:
    if not signature.has(name):
        return
    past = signature.inputs[name]
    if past.rank != 4:
        raise error(f"{name} must have rank 4", past)
    dims = signature.dims
    target = (dims.batch_size, signature.spec.num_kv_heads, dims.seqlen_past, width)
    if not fits(past.shape, target):
        raise error(f"{name} must be {shape_text(target)}", past)


def _check_lengths(signature: AttentionSignature) -> None:
    target = (signature.dims.batch_size,)
    if signature.has("kv_lengths") and not fits(signature.inputs["kv_lengths"].shape, target):
        raise error(f"kv_lengths must be {shape_text(target)}", signature.inputs["kv_lengths"])
