"""QKNormAttention as formulas: the oracle that every kernel and every export is compared with.

Symbols in shapes: B batch, Sq query length, Skv new keys, P past, T total, H / Hkv heads, D / Dv
head dims, R rotary dim, W cache width, G segments. Everything here is plain differentiable PyTorch
that materializes the scores; it runs on any device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch

from qkexport.errors import InvalidSpecError
from qkexport.signature import AttentionSignature, DType, TensorType
from qkexport.spec import (
    OP_TYPE,
    AttentionSpec,
    Causal,
    KvCache,
    NormAxis,
    NormRounding,
    QkNorm,
    Rotary,
)

Tensors = Mapping[str, torch.Tensor]

_DTYPES: Final = {
    torch.float32: DType.FLOAT32,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
    torch.bool: DType.BOOL,
    torch.int64: DType.INT64,
}


def reference_attention(
    spec: AttentionSpec,
    inputs: Tensors,
    *,
    compute_dtype: torch.dtype = torch.float64,
    outputs: tuple[str, ...] = ("output",),
) -> dict[str, torch.Tensor]:
    """Computes one QK-norm attention.

    Args:
        spec: The attributes.
        inputs: The inputs that are present, by the operator's names, of the operator's shapes.
        compute_dtype: float64 rounds nothing and returns float64: the exact answer. float32 is the
            precision contract: rounds to the tensor type T where the contract does, returns T.
        outputs: `("output",)`, or all three names.

    Returns:
        `output` `[B,Sq,H*Dv]` or `[B,H,Sq,Dv]` as the query, and when asked for `present_key`
        `[B,Hkv,T,D]` and `present_value` `[B,Hkv,T,Dv]`.

    Raises:
        InvalidSpecError: Inputs that break the contract, or a position id outside its cache.
    """
    if compute_dtype not in (torch.float64, torch.float32):
        message = (
            f"reference_attention compute_dtype must be float64 or float32, got {compute_dtype}."
        )
        raise InvalidSpecError(message)
    signature = signature_of(spec, inputs, outputs)
    dtype = inputs["query"].dtype
    stored_dtype = compute_dtype if compute_dtype == torch.float64 else dtype
    tensors = {
        name: tensor.to(compute_dtype) if tensor.is_floating_point() else tensor
        for name, tensor in inputs.items()
    }
    present_key, present_value = _presents(signature, tensors, stored_dtype)
    result = _attend(signature, tensors, stored_dtype, present_key, present_value)
    computed = (result, present_key, present_value)[: len(outputs)]
    return {name: tensor.to(stored_dtype) for name, tensor in zip(outputs, computed, strict=True)}


def signature_of(
    spec: AttentionSpec, inputs: Tensors, outputs: tuple[str, ...] = ("output",)
) -> AttentionSignature:
    """Describes tensors as a checked signature; symbolic sizes count as unknown.

    Raises:
        InvalidSpecError: The tensors break the operator's contract.
    """
    return AttentionSignature(
        spec, {name: _tensor_type(name, tensor) for name, tensor in inputs.items()}, outputs
    )


def _tensor_type(name: str, tensor: torch.Tensor) -> TensorType:
    if tensor.dtype not in _DTYPES:
        accepted = ", ".join(str(dtype) for dtype in _DTYPES.values())
        message = f"{OP_TYPE} {name} has a type the operator does not know, got {tensor.dtype}."
        raise InvalidSpecError(message, note=f"known: {accepted}.")
    shape = tuple(size if isinstance(size, int) else None for size in tensor.shape)
    return TensorType(_DTYPES[tensor.dtype], shape)


def _presents(
    signature: AttentionSignature, tensors: Tensors, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """All keys `[B,Hkv,T,D]`, normalized and rotated, and all values `[B,Hkv,T,Dv]`."""
    spec = signature.spec
    key = _split_heads(tensors["key"], spec.num_kv_heads)
    value = _split_heads(tensors["value"], spec.num_kv_heads)
    if spec.normalize_key:
        key = _normalize_and_rotate(signature, tensors, dtype, "k", key)
    return _append(signature, tensors, "past_key", key), _append(
        signature, tensors, "past_value", value
    )


def _split_heads(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    """`[B,S,H*D]` or `[B,H,S,D]` to `[B,H,S,D]`."""
    if x.dim() == 4:
        return x
    return x.reshape(*x.shape[:2], num_heads, x.shape[-1] // num_heads).transpose(1, 2)


def _normalize_and_rotate(
    signature: AttentionSignature,
    tensors: Tensors,
    dtype: torch.dtype,
    prefix: str,
    x: torch.Tensor,
) -> torch.Tensor:
    """Steps 1 and 2 for new queries (`q`) or keys (`k`), rounded to T: `[B,H,S,D]`."""
    rotary = signature.spec.rotary
    if rotary is Rotary.BEFORE_NORM:
        x = _rotate(signature, tensors, prefix, x)
    x = _normalize(signature.spec, tensors, dtype, prefix, x)
    if rotary is Rotary.AFTER_NORM:
        x = _rounded(_rotate(signature, tensors, prefix, x), dtype)
    return x


def _rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).to(x.dtype)


def _normalize(
    spec: AttentionSpec, tensors: Tensors, dtype: torch.dtype, prefix: str, x: torch.Tensor
) -> torch.Tensor:
    """norm(x) * weight + bias."""
    y = _norm(spec, x)
    if spec.norm_rounding is NormRounding.BEFORE_WEIGHT:
        y = _rounded(y, dtype)
    segment = _segment_of_token(tensors, x.shape[2])
    if f"{prefix}_norm_weight" in tensors:
        y = y * _per_channel(tensors[f"{prefix}_norm_weight"], segment, x.shape[-1])
    if f"{prefix}_norm_bias" in tensors:
        y = y + _per_channel(tensors[f"{prefix}_norm_bias"], segment, x.shape[-1])
    return _rounded(y, dtype)


def _norm(spec: AttentionSpec, x: torch.Tensor) -> torch.Tensor:
    axes = (-1,) if spec.norm_axis is NormAxis.HEAD else (1, 3)
    epsilon = spec.qk_norm_epsilon
    if spec.qk_norm is QkNorm.L2:
        return x / torch.linalg.vector_norm(x, dim=axes, keepdim=True).clamp_min(epsilon)
    if spec.qk_norm is QkNorm.LAYER:
        x = x - x.mean(axes, keepdim=True)
    return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon)


def _segment_of_token(tensors: Tensors, seqlen: int) -> torch.Tensor | None:
    """The gain row of each new token `[S]`; None without segments."""
    if "segment_ends" not in tensors:
        return None
    ends = tensors["segment_ends"]
    token = torch.arange(seqlen, device=ends.device)
    return (ends <= token[:, None]).sum(1).clamp_max(ends.shape[0] - 1)


def _per_channel(
    parameter: torch.Tensor, segment: torch.Tensor | None, head_dim: int
) -> torch.Tensor:
    """A gain or bias as `[H or 1, S or 1, D]`."""
    rows = parameter[None] if segment is None else parameter[segment]
    heads = rows.shape[1:].numel() // head_dim
    return rows.reshape(rows.shape[0], heads, head_dim).transpose(0, 1)


def _rotate(
    signature: AttentionSignature, tensors: Tensors, prefix: str, x: torch.Tensor
) -> torch.Tensor:
    """RoPE on the first R channels: x * cos + turned(x) * sin."""
    spec = signature.spec
    own = "key_" if prefix == "k" and "key_cos_cache" in tensors else ""
    rotary_dim = spec.rotary_dim or x.shape[-1]
    cos = _per_token(tensors, f"{own}cos_cache", spec, rotary_dim)
    sin = _per_token(tensors, f"{own}sin_cache", spec, rotary_dim)
    turning, passing = x[..., :rotary_dim], x[..., rotary_dim:]
    if spec.rotary_interleaved:
        pairs = turning.reshape(*turning.shape[:-1], rotary_dim // 2, 2)
        turned = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
    else:
        first, second = turning.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    return torch.cat((turning * cos + turned * sin, passing), -1)


def _per_token(tensors: Tensors, name: str, spec: AttentionSpec, rotary_dim: int) -> torch.Tensor:
    """A cache as one entry a channel of each token: `[B or 1, H or 1, S, R]`."""
    cache = tensors[name]
    if cache.dim() == 2:
        positions = tensors["position_ids"]
        if ((positions < 0) | (positions >= cache.shape[0])).any():
            rule = f"position_ids must lie in [0, {cache.shape[0]})"
            message = f"{OP_TYPE} {rule}, got {positions.tolist()}."
            raise InvalidSpecError(message, note=f"{name} has {cache.shape[0]} rows.")
        cache = cache[positions]
    if cache.dim() == 3:
        cache = cache[:, None]
    if cache.shape[-1] == rotary_dim:
        return cache
    if spec.rotary_interleaved:
        return cache.repeat_interleave(2, -1)
    return torch.cat((cache, cache), -1)


def _append(
    signature: AttentionSignature, tensors: Tensors, past_name: str, new: torch.Tensor
) -> torch.Tensor:
    """Past rows and new rows `[B,Hkv,Skv,D]` as `[B,Hkv,T,D]`."""
    if past_name not in tensors:
        return new
    past = tensors[past_name]
    rows = torch.cat((past, new), 2)
    if signature.spec.kv_cache is KvCache.CONCAT:
        return rows
    # Row j of the buffer takes new row j - start, where there is one, else keeps what it holds.
    total, seqlen_kv = past.shape[2], new.shape[2]
    row = torch.arange(total, device=new.device)
    new_row = row - (_lengths(tensors, total)[:, None] - seqlen_kv)
    source = torch.where((new_row >= 0) & (new_row < seqlen_kv), total + new_row, row)
    return rows.take_along_dim(source[:, None, :, None], 2)


def _lengths(tensors: Tensors, total: int) -> torch.Tensor:
    return tensors["kv_lengths"].clamp(0, total)


def _attend(
    signature: AttentionSignature,
    tensors: Tensors,
    dtype: torch.dtype,
    key: torch.Tensor,
    value: torch.Tensor,
) -> torch.Tensor:
    """Steps 4 to 6."""
    spec = signature.spec
    query = _split_heads(tensors["query"], spec.num_heads)
    query = _normalize_and_rotate(signature, tensors, dtype, "q", query)
    key, value = (x.repeat_interleave(spec.group_size, 1) for x in (_rounded(key, dtype), value))
    scores = spec.scale * _head_scale(tensors) * (query @ key.transpose(-1, -2))
    if spec.softcap:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    visible = _visible(signature, tensors, scores.shape[2], scores.shape[3], scores.device)
    mask = _mask(tensors, scores.shape[0])
    if mask is not None and mask.dtype == torch.bool:
        visible = visible & mask
    elif mask is not None:
        scores = scores + mask
        visible = visible & (mask != -torch.inf)
    visible = visible & (scores != -torch.inf)
    output = _weighted_sum(_softmax(scores, visible), visible, value)
    return output if signature.rank == 4 else output.transpose(1, 2).flatten(2)


def _head_scale(tensors: Tensors) -> torch.Tensor | float:
    """Broadcastable to `[B,H,Sq,1]`."""
    if "head_scale" not in tensors:
        return 1.0
    scale = tensors["head_scale"]
    return scale[:, None, None] if scale.dim() == 1 else scale


def _mask(tensors: Tensors, batch_size: int) -> torch.Tensor | None:
    """Broadcastable to `[B,H,Sq,T]`: entry b of the batch reads entry b % Bm of the mask."""
    mask = tensors.get("attn_mask")
    if mask is None or mask.dim() < 4 or mask.shape[0] in (1, batch_size):
        return mask
    return mask.repeat(batch_size // mask.shape[0], 1, 1, 1)


def _visible(
    signature: AttentionSignature,
    tensors: Tensors,
    seqlen_q: int,
    seqlen_total: int,
    device: torch.device,
) -> torch.Tensor:
    """Which keys causal, windows and lengths let a query see: `[B or 1, 1, Sq, T]`."""
    spec = signature.spec
    j = torch.arange(seqlen_total, device=device)
    i = torch.arange(seqlen_q, device=device)[:, None]
    position = i + _offset(signature, tensors, seqlen_q, seqlen_total)
    visible = torch.ones_like(position - j, dtype=torch.bool)
    if spec.causal is not Causal.NONE:
        visible = visible & (j <= position)
    if spec.window_left >= 0:
        visible = visible & (j >= position - spec.window_left)
    if spec.window_right >= 0:
        visible = visible & (j <= position + spec.window_right)
    if "kv_lengths" in tensors:
        visible = visible & (j < _lengths(tensors, seqlen_total)[:, None, None, None])
    return visible.expand(1, 1, -1, -1) if visible.dim() == 2 else visible


def _offset(
    signature: AttentionSignature, tensors: Tensors, seqlen_q: int, seqlen_total: int
) -> torch.Tensor | int:
    """The key position of query 0: a number, or `[B,1,1,1]`."""
    spec = signature.spec
    if spec.causal is not Causal.LOWER_RIGHT:
        return 0 if spec.kv_cache is KvCache.STATIC else signature.dims.seqlen_past or 0
    if "kv_lengths" in tensors:
        return _lengths(tensors, seqlen_total)[:, None, None, None] - seqlen_q
    return seqlen_total - seqlen_q


def _softmax(scores: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Softmax over the visible keys; zeros in a row that sees none."""
    weights = torch.softmax(scores.masked_fill(~visible, -torch.inf), -1)
    return weights.masked_fill(~visible, 0)


def _weighted_sum(
    weights: torch.Tensor, visible: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Weights times values, where inf and NaN reach only the rows that see them."""
    finite = torch.isfinite(value)
    output = weights @ value.masked_fill(~finite, 0)
    if finite.all():
        return output
    row = (~finite).any(-1).flatten(0, 1).any(0)  # [T]
    terms = weights[..., row, None] * value[:, :, None, row].masked_fill(finite[:, :, None, row], 0)
    return output + terms.masked_fill(~visible[..., row, None], 0).sum(-2)
