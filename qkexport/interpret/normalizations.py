"""Normalizations; statistics are float32 at least, as ONNX's stash_type says."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from qkexport.interpret.call import Call, float32_inside, operator


@operator("RMSNormalization")
def rms_norm(call: Call, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Normalized values are rounded to x's type before the gain; the result has the gain's."""
    axes = tuple(range(call.get("axis", -1) % x.dim(), x.dim()))
    wide = float32_inside(x)
    mean = wide.square().mean(axes, keepdim=True)
    normalized = wide / (mean + float(call.get("epsilon", 1e-5))).sqrt()
    return normalized.to(scale.dtype) * scale


@operator("LayerNormalization")
def layer_norm(
    call: Call, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    axes = tuple(range(call.get("axis", -1) % x.dim(), x.dim()))
    wide = float32_inside(x)
    mean = wide.mean(axes, keepdim=True)
    variance = (wide - mean).square().mean(axes, keepdim=True)
    inverse = (variance + float(call.get("epsilon", 1e-5))).rsqrt()
    y = ((wide - mean) * inverse).to(scale.dtype) * scale
    return (y if bias is None else y + bias, mean, inverse)[: call.num_outputs]


@operator("GroupNormalization")
def group_norm(
    call: Call, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Gain and bias have one entry a channel since opset 21, one a group before."""
    groups = call.get("num_groups")
    if call.opset < 21:
        repeat = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(repeat), bias.repeat_interleave(repeat)
    return F.group_norm(x, groups, scale, bias, call.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def instance_norm(
    call: Call, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=call.get("epsilon", 1e-5))


@operator("LpNormalization")
def lp_norm(call: Call, x: torch.Tensor) -> torch.Tensor:
    """A zero row gives zeros."""
    order, axis = call.get("p", 2), call.get("axis", -1)
    norm = torch.linalg.vector_norm(x, order, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)
