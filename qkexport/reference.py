"""QKNormAttention as formulas: the oracle that every kernel and every export is compared with.

Symbols in shapes: B batch, Sq query length, Skv new keys, P past, T total, H / Hkv heads, D / Dv
head dims, R rotary dim, G segments. Everything here is plain differentiable PyTorch that
materializes the scores; it runs on any device.
"""

from __future__ import annotations

import dataclasses
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

_DTYPES: Final = {
    torch.float32: DType.FLOAT32,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
    torch.bool: DType.BOOL,
    torch.int64: DType.INT64,
}


@dataclasses.dataclass(frozen=True)
class _Call:
    """One evaluation: floating tensors in the compute type, and the type results are stored in."""

    spec: AttentionSpec
    tensors: Mapping[str, torch.Tensor]
    stored_dtype: torch.dtype

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        """X as if it had been stored; the same x when computing exactly."""
        return x.to(self.stored_dtype).to(x.dtype)


def reference_attention(
    spec: AttentionSpec,
    inputs: Mapping[str, torch.Tensor],
    *,
    compute_dtype: torch.dtype = torch.float64,
    outputs: tuple[str, ...] = ("output",),
) -> dict[str, torch.Tensor]:
    """Computes one QK-norm attention.

    Args:
        spec: The attributes.
        inputs: The inputs that are present, by the operator's names, of the operator's shapes.
            For the exact answer float64 may stand for float32.
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
        subject = "reference_attention compute_dtype"
        raise InvalidSpecError(f"{subject} must be float64 or float32, got {compute_dtype}.")
    exact = compute_dtype == torch.float64
    signature_of(spec, inputs, outputs, exact=exact)
    tensors = {
        name: tensor.to(compute_dtype) if tensor.is_floating_point() else tensor
        for name, tensor in inputs.items()
    }
    call = _Call(spec, tensors, torch.float64 if exact else inputs["query"].dtype)

    query = _split_heads(tensors["query"], spec.num_heads)
    key = _split_heads(tensors["key"], spec.num_kv_heads)
    value = _split_heads(tensors["value"], spec.num_kv_heads)
    query = _normalize_and_rotate(call, "q", query)
    if spec.normalize_key:
        key = _normalize_and_rotate(call, "k", key)
    key, value = _append(call, "past_key", key), _append(call, "past_value", value)
    output = _attend(call, query, key, value)
    if tensors["query"].dim() == 3:
        output = output.transpose(1, 2).flatten(2)
    computed = (output, key, value)[: len(outputs)]
    return {name: x.to(call.stored_dtype) for name, x in zip(outputs, computed, strict=True)}


def signature_of(
    spec: AttentionSpec,
    inputs: Mapping[str, torch.Tensor],
    outputs: tuple[str, ...] = ("output",),
    *,
    exact: bool = False,
) -> AttentionSignature:
    """Describes tensors as a checked signature; symbolic sizes count as unknown.

    Args:
        spec: The attributes.
        inputs: The inputs that are present, by name.
        outputs: Names of the outputs that are wanted.
        exact: Whether float64 tensors may stand for float32 ones.

    Raises:
        InvalidSpecError: The tensors break the operator's contract.
    """
    dtypes = {**_DTYPES, torch.float64: DType.FLOAT32} if exact else _DTYPES
    types: dict[str, TensorType] = {}
    for name, tensor in inputs.items():
        if tensor.dtype not in dtypes:
            accepted = ", ".join(map(str, _DTYPES.values()))
            message = f"{OP_TYPE} {name} must have a type the operator knows, got {tensor.dtype}."
            raise InvalidSpecError(message, note=f"known types: {accepted}.")
        shape = tuple(size if isinstance(size, int) else None for size in tensor.shape)
        types[name] = TensorType(dtypes[tensor.dtype], shape)
    return AttentionSignature(spec, types, outputs)


def _split_heads(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    """`[B,S,H*D]` or `[B,H,S,D]` to `[B,H,S,D]`."""
    if x.dim() == 4:
        return x
    return x.reshape(*x.shape[:2], num_heads, x.shape[-1] // num_heads).transpose(1, 2)


# Steps 1 and 2: norm and RoPE of new queries ("q") and keys ("k"), `[B,H,S,D]`.


def _normalize_and_rotate(call: _Call, side: str, x: torch.Tensor) -> torch.Tensor:
    if call.spec.rotary is Rotary.BEFORE_NORM:
        x = _rotate(call, side, x)
    x = _normalize(call, side, x)
    if call.spec.rotary is Rotary.AFTER_NORM:
        x = call.rounded(_rotate(call, side, x))
    return x


def _normalize(call: _Call, side: str, x: torch.Tensor) -> torch.Tensor:
    """norm(x) * weight + bias."""
    y = _norm(call.spec, x)
    if call.spec.norm_rounding is NormRounding.BEFORE_WEIGHT:
        y = call.rounded(y)
    if f"{side}_norm_weight" in call.tensors:
        y = y * _per_channel(call, f"{side}_norm_weight", x)
    if f"{side}_norm_bias" in call.tensors:
        y = y + _per_channel(call, f"{side}_norm_bias", x)
    return call.rounded(y)


def _norm(spec: AttentionSpec, x: torch.Tensor) -> torch.Tensor:
    axes = (-1,) if spec.norm_axis is NormAxis.HEAD else (1, 3)
    if spec.qk_norm is QkNorm.L2:
        length: torch.Tensor = torch.linalg.vector_norm(x, dim=axes, keepdim=True)
        return x / length.clamp_min(spec.qk_norm_epsilon)
    if spec.qk_norm is QkNorm.LAYER:
        x = x - x.mean(axes, keepdim=True)
    return x * torch.rsqrt(x.square().mean(axes, keepdim=True) + spec.qk_norm_epsilon)


def _per_channel(call: _Call, name: str, x: torch.Tensor) -> torch.Tensor:
    """A gain or bias for x `[B,H,S,D]` as `[H or 1, S or 1, D]`."""
    parameter = call.tensors[name][None]
    if "segment_ends" in call.tensors:
        ends = call.tensors["segment_ends"]
        token = torch.arange(x.shape[2], device=x.device)[:, None]
        parameter = parameter[0, (ends <= token).sum(1).clamp_max(ends.shape[0] - 1)]
    num_rows, head_dim = parameter.shape[0], x.shape[3]
    heads = parameter.shape[1:].numel() // head_dim
    return parameter.reshape(num_rows, heads, head_dim).transpose(0, 1)


def _rotate(call: _Call, side: str, x: torch.Tensor) -> torch.Tensor:
    """RoPE of the first R channels: x * cos + turned(x) * sin."""
    rotary_dim = call.spec.rotary_dim or x.shape[3]
    own = "key_" if side == "k" and "key_cos_cache" in call.tensors else ""
    cos = _per_token(call, f"{own}cos_cache", rotary_dim)
    sin = _per_token(call, f"{own}sin_cache", rotary_dim)
    rotated, passed = x[..., :rotary_dim], x[..., rotary_dim:]
    if call.spec.rotary_interleaved:
        turned = torch.stack((-rotated[..., 1::2], rotated[..., ::2]), -1).flatten(-2)
    else:
        first, second = rotated.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    return torch.cat((rotated * cos + turned * sin, passed), -1)


def _per_token(call: _Call, name: str, rotary_dim: int) -> torch.Tensor:
    """The entry of a cache for each channel of each token: `[B or 1, H or 1, S, R]`."""
    cache = call.tensors[name]
    if cache.dim() == 2:
        cache = cache[_checked_positions(call, cache.shape[0])]
    if cache.dim() == 3:
        cache = cache[:, None]
    if cache.shape[-1] == rotary_dim:
        return cache
    if call.spec.rotary_interleaved:
        return cache.repeat_interleave(2, -1)
    return torch.cat((cache, cache), -1)


def _checked_positions(call: _Call, num_rows: int) -> torch.Tensor:
    positions = call.tensors["position_ids"]
    outside = positions[(positions < 0) | (positions >= num_rows)]
    if outside.numel():
        rule = f"position_ids must lie in [0, {num_rows})"
        raise InvalidSpecError(
            f"{OP_TYPE} {rule}, got {outside[0].item()}.",
            note=f"the rotary cache has {num_rows} rows.",
            hint="build a longer cache.",
        )
    return positions


# Step 3: the cache.


def _append(call: _Call, past_name: str, new: torch.Tensor) -> torch.Tensor:
    """Past rows and new rows `[B,Hkv,Skv,D]` as `[B,Hkv,T,D]`."""
    if past_name not in call.tensors:
        return new
    past = call.tensors[past_name]
    rows = torch.cat((past, new), 2)
    if call.spec.kv_cache is KvCache.CONCAT:
        return rows
    # Row j of the buffer takes new row j - start where there is one, else keeps what it holds.
    total, seqlen_kv = past.shape[2], new.shape[2]
    row = torch.arange(total, device=new.device)
    new_row = row - (_lengths(call, total) - seqlen_kv)
    source = torch.where((new_row >= 0) & (new_row < seqlen_kv), total + new_row, row)
    return rows.take_along_dim(source[:, None, :, None], 2)


def _lengths(call: _Call, total: int) -> torch.Tensor:
    """Valid rows of each batch entry: `[B,1]`."""
    return call.tensors["kv_lengths"].clamp(0, total)[:, None]


# Steps 4 to 6: scores, softmax, output.


def _attend(
    call: _Call, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Query `[B,H,Sq,D]`, key `[B,Hkv,T,D]`, value `[B,Hkv,T,Dv]` to `[B,H,Sq,Dv]`."""
    spec = call.spec
    key = key.repeat_interleave(spec.group_size, 1)
    value = value.repeat_interleave(spec.group_size, 1)
    scores = spec.scale * _head_scale(call) * (query @ key.transpose(2, 3))
    if spec.softcap:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    visible = _visible(call, query, key)
    mask = _mask(call, query.shape[0])
    if mask.dtype == torch.bool:
        visible = visible & mask
    else:
        scores = scores + mask
        visible = visible & (mask != -torch.inf)
    visible = visible & (scores != -torch.inf)
    weights = torch.softmax(scores.masked_fill(~visible, -torch.inf), -1)
    # Rows that see nothing are NaN at this point.
    weights = weights.masked_fill(~visible, 0)
    return _weighted_sum(weights, visible, value)


def _head_scale(call: _Call) -> torch.Tensor | float:
    """Broadcastable to `[B,H,Sq,1]`."""
    scale = call.tensors.get("head_scale")
    if scale is None:
        return 1.0
    return scale[:, None, None] if scale.dim() == 1 else scale


def _mask(call: _Call, batch_size: int) -> torch.Tensor:
    """Broadcastable to `[B,H,Sq,T]`: entry b of the batch reads entry b % Bm of the mask."""
    mask = call.tensors.get("attn_mask")
    if mask is None:
        return torch.ones((), dtype=torch.bool, device=call.tensors["query"].device)
    if mask.dim() < 4 or mask.shape[0] in (1, batch_size):
        return mask
    return mask.repeat(batch_size // mask.shape[0], 1, 1, 1)


def _visible(call: _Call, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Which keys causal, windows and lengths let a query see: `[B or 1, 1, Sq, T]`."""
    spec, total = call.spec, key.shape[2]
    j = torch.arange(total, device=key.device)
    i = torch.arange(query.shape[2], device=key.device)[:, None]
    diagonal = i + _offset(call, query.shape[2], total)  # [B or 1, 1, Sq, 1]
    visible = torch.ones_like(diagonal - j, dtype=torch.bool)
    if spec.causal is not Causal.NONE:
        visible = visible & (j <= diagonal)
    if spec.window_left >= 0:
        visible = visible & (j >= diagonal - spec.window_left)
    if spec.window_right >= 0:
        visible = visible & (j <= diagonal + spec.window_right)
    if "kv_lengths" in call.tensors:
        visible = visible & (j < _lengths(call, total)[:, :, None, None])
    return visible


def _offset(call: _Call, seqlen_q: int, total: int) -> torch.Tensor:
    """The key that stands at query 0's own position: `[B or 1, 1, 1, 1]`."""
    if call.spec.causal is Causal.LOWER_RIGHT and "kv_lengths" in call.tensors:
        return (_lengths(call, total) - seqlen_q)[:, :, None, None]
    if call.spec.causal is Causal.LOWER_RIGHT:
        offset = total - seqlen_q
    elif call.spec.kv_cache is KvCache.CONCAT and "past_key" in call.tensors:
        offset = call.tensors["past_key"].shape[2]
    else:
        offset = 0
    return torch.full((1, 1, 1, 1), offset, device=call.tensors["query"].device)


def _weighted_sum(
    weights: torch.Tensor, visible: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Weights times values; inf and NaN among the values reach only the rows that see them."""
    finite = torch.isfinite(value)
    output = weights @ value.masked_fill(~finite, 0)
    if finite.all():
        return output
    rows = (~finite).flatten(0, 1).any(0).any(-1)  # [T]
    spoiled = value.masked_fill(finite, 0)[:, :, None, rows]  # [B,H,1,rows,Dv]
    terms = weights[..., rows, None] * spoiled
    return output + terms.masked_fill(~visible[..., rows, None], 0).sum(-2)
