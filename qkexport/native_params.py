"""`AttentionParams` of plugins/include/qkexport/attention_params.h, filled from tensors.

The structures mirror the C++ ones field by field; loading the library compares their size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

import torch

from qkexport.signature import AttentionSignature
from qkexport.spec import Causal, KvCache, NormAxis, NormRounding, QkNorm, Rotary

# The order of the enumerators in C++.
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.bool)
_QK_NORMS: Final = (QkNorm.RMS, QkNorm.LAYER, QkNorm.L2)
_NORM_AXES: Final = (NormAxis.HEAD, NormAxis.HIDDEN)
_NORM_ROUNDINGS: Final = (NormRounding.AFTER_WEIGHT, NormRounding.BEFORE_WEIGHT)
_ROTARIES: Final = (Rotary.NONE, Rotary.AFTER_NORM, Rotary.BEFORE_NORM)
_CAUSALS: Final = (Causal.NONE, Causal.UPPER_LEFT, Causal.LOWER_RIGHT)
_KV_CACHES: Final = (KvCache.CONCAT, KvCache.STATIC)


class StridedTensor(ctypes.Structure):
    """A `[batch, head, row, channel]` tensor; strides in elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("batch_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
    )


class NormParameter(ctypes.Structure):
    """A gain or bias of the norm."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("segment_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
    )


class RotaryCache(ctypes.Structure):
    """The cos and sin tables of RoPE."""

    _fields_ = (
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("width", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("batch_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("position_ids", ctypes.c_void_p),
        ("position_batch_stride", ctypes.c_int64),
    )


class AttentionMask(ctypes.Structure):
    """attn_mask, broadcast by zero strides."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("batch_size", ctypes.c_int64),
        ("batch_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("column_stride", ctypes.c_int64),
    )


class AttentionParams(ctypes.Structure):
    """Everything a kernel needs to know about one call."""

    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("batch_size", ctypes.c_int64),
        ("seqlen_q", ctypes.c_int64),
        ("seqlen_kv", ctypes.c_int64),
        ("seqlen_past", ctypes.c_int64),
        ("seqlen_total", ctypes.c_int64),
        ("num_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("head_dim_v", ctypes.c_int64),
        ("rotary_dim", ctypes.c_int64),
        ("num_segments", ctypes.c_int64),
        ("query", StridedTensor),
        ("key", StridedTensor),
        ("value", StridedTensor),
        ("past_key", StridedTensor),
        ("past_value", StridedTensor),
        ("output", StridedTensor),
        ("present_key", StridedTensor),
        ("present_value", StridedTensor),
        ("q_norm_weight", NormParameter),
        ("k_norm_weight", NormParameter),
        ("q_norm_bias", NormParameter),
        ("k_norm_bias", NormParameter),
        ("query_rotary", RotaryCache),
        ("key_rotary", RotaryCache),
        ("mask", AttentionMask),
        ("head_scale", ctypes.c_void_p),
        ("head_scale_batch_stride", ctypes.c_int64),
        ("head_scale_head_stride", ctypes.c_int64),
        ("head_scale_row_stride", ctypes.c_int64),
        ("kv_lengths", ctypes.c_void_p),
        ("segment_ends", ctypes.c_void_p),
        ("qk_norm", ctypes.c_int32),
        ("norm_axis", ctypes.c_int32),
        ("norm_rounding", ctypes.c_int32),
        ("rotary", ctypes.c_int32),
        ("causal", ctypes.c_int32),
        ("kv_cache", ctypes.c_int32),
        ("rotary_interleaved", ctypes.c_bool),
        ("normalize_key", ctypes.c_bool),
        ("qk_norm_epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("window_left", ctypes.c_int64),
        ("window_right", ctypes.c_int64),
    )


def fill_params(
    signature: AttentionSignature,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
) -> AttentionParams:
    """Describes a checked call. The tensors must stay alive until the kernel has run.

    Args:
        signature: The checked call.
        inputs: Its inputs; the last axis of each contiguous.
        outputs: Its outputs, allocated.
    """
    params = AttentionParams(dtype=_DTYPES.index(inputs["query"].dtype))
    _fill_attributes(params, signature)
    _fill_sizes(params, signature)
    for name in ("query", "key", "value", "output"):
        tensor = outputs[name] if name == "output" else inputs[name]
        num_kv_heads = signature.spec.num_kv_heads
        num_heads = signature.spec.num_heads if name in ("query", "output") else num_kv_heads
        setattr(params, name, _heads(tensor, num_heads))
    for name in ("past_key", "past_value", "present_key", "present_value"):
        tensors = inputs if name.startswith("past") else outputs
        if name in tensors:
            setattr(params, name, _heads(tensors[name], signature.spec.num_kv_heads))
    for name in ("q_norm_weight", "k_norm_weight", "q_norm_bias", "k_norm_bias"):
        if name in inputs:
            setattr(params, name, _norm_parameter(signature, inputs[name]))
    _fill_rotary(params, inputs)
    _fill_scores(params, inputs)
    for name in ("kv_lengths", "segment_ends"):
        if name in inputs:
            setattr(params, name, inputs[name].data_ptr())
    return params


def _fill_attributes(params: AttentionParams, signature: AttentionSignature) -> None:
    spec = signature.spec
    params.qk_norm = _QK_NORMS.index(spec.qk_norm)
    params.norm_axis = _NORM_AXES.index(spec.norm_axis)
    params.norm_rounding = _NORM_ROUNDINGS.index(spec.norm_rounding)
    params.rotary = _ROTARIES.index(spec.rotary)
    params.causal = _CAUSALS.index(spec.causal)
    params.kv_cache = _KV_CACHES.index(spec.kv_cache)
    same = ("rotary_interleaved", "normalize_key", "qk_norm_epsilon", "scale", "softcap")
    for name in (*same, "window_left", "window_right", "num_heads", "num_kv_heads"):
        setattr(params, name, getattr(spec, name))


def _fill_sizes(params: AttentionParams, signature: AttentionSignature) -> None:
    dims = signature.dims
    names = ("batch_size", "seqlen_q", "seqlen_kv", "seqlen_past", "seqlen_total")
    for name in (*names, "head_dim", "head_dim_v", "rotary_dim", "num_segments"):
        setattr(params, name, getattr(dims, name))


def _heads(tensor: torch.Tensor, num_heads: int) -> StridedTensor:
    if tensor.dim() == 4:
        batch, head, row, _ = tensor.stride()
    else:
        batch, row, _ = tensor.stride()
        head = tensor.shape[2] // num_heads
    return StridedTensor(tensor.data_ptr(), batch, head, row)


def _norm_parameter(signature: AttentionSignature, tensor: torch.Tensor) -> NormParameter:
    tensor = tensor.contiguous()
    per_segment = tensor.shape[1:] if "segment_ends" in signature.inputs else tensor.shape
    segment_stride = per_segment.numel() if "segment_ends" in signature.inputs else 0
    head_dim = signature.dims.head_dim
    shared = signature.spec.norm_axis is NormAxis.HEAD and len(per_segment) == 1
    return NormParameter(
        tensor.data_ptr(), _DTYPES.index(tensor.dtype), segment_stride, 0 if shared else head_dim
    )


def _fill_rotary(params: AttentionParams, inputs: Mapping[str, torch.Tensor]) -> None:
    if "cos_cache" not in inputs:
        return
    params.query_rotary = _rotary_cache(inputs, "")
    own = "key_" if "key_cos_cache" in inputs else ""
    params.key_rotary = _rotary_cache(inputs, own)


def _rotary_cache(inputs: Mapping[str, torch.Tensor], prefix: str) -> RotaryCache:
    cos, sin = inputs[f"{prefix}cos_cache"], inputs[f"{prefix}sin_cache"]
    cache = RotaryCache(cos.data_ptr(), sin.data_ptr(), _DTYPES.index(cos.dtype))
    cache.width, cache.num_rows = cos.shape[-1], cos.shape[-2]
    cache.row_stride = cos.stride(-2)
    if cos.dim() == 2:
        positions = inputs["position_ids"]
        cache.position_ids = positions.data_ptr()
        cache.position_batch_stride = _broadcast_stride(positions, 0)
        return cache
    cache.batch_stride = _broadcast_stride(cos, 0)
    cache.head_stride = _broadcast_stride(cos, 1) if cos.dim() == 4 else 0
    return cache


def _broadcast_stride(tensor: torch.Tensor, axis: int) -> int:
    """The stride of an axis counted from the front; 0 where it is broadcast or missing."""
    if axis < 0 or tensor.shape[axis] == 1:
        return 0
    return tensor.stride(axis)


def _fill_scores(params: AttentionParams, inputs: Mapping[str, torch.Tensor]) -> None:
    if "attn_mask" in inputs:
        mask = inputs["attn_mask"]
        batch, head, row, column = (_broadcast_stride(mask, mask.dim() - n) for n in (4, 3, 2, 1))
        batch_size = mask.shape[0] if mask.dim() == 4 else 1
        params.mask = AttentionMask(
            mask.data_ptr(), _DTYPES.index(mask.dtype), batch_size, batch, head, row, column
        )
    if "head_scale" in inputs:
        scale = inputs["head_scale"]
        rank = scale.dim()  # [1] and [H], else broadcastable to [B,H,Sq,1]
        axes = (-1, 0, -1) if rank == 1 else (rank - 4, rank - 3, rank - 2)
        batch, head, row = (_broadcast_stride(scale, axis) for axis in axes)
        params.head_scale = scale.data_ptr()
        params.head_scale_batch_stride = batch
        params.head_scale_head_stride = head
        params.head_scale_row_stride = row
