"""The Attention and RotaryEmbedding operators of opset 23 and later, and QKNormAttention."""

from __future__ import annotations

import math
from typing import Any

import torch

from qkexport.errors import UnsupportedModelError
from qkexport.interpret.call import EXACT, Call, float32_inside, operator
from qkexport.reference import reference_attention
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES
from qkexport.spec import AttentionSpec


@operator("Attention")
def attention(
    call: Call,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    past_key: torch.Tensor | None = None,
    past_value: torch.Tensor | None = None,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Scores and softmax in float32 at least, softcap before the mask, a blind row gives zeros."""
    flat = q.dim() == 3
    query = _heads(q, call.get("q_num_heads"))
    key, value = _heads(k, call.get("kv_num_heads")), _heads(v, call.get("kv_num_heads"))
    if past_key is not None and past_value is not None:
        key = torch.cat([past_key, key], dim=2)
        value = torch.cat([past_value, value], dim=2)
    past = 0 if past_key is None else past_key.shape[2]
    scores = _scores(call, query, key)
    visible = _visible(call, query, key, past, lengths)
    bias = None if mask is None else _padded(mask, key.shape[2])
    if bias is not None and bias.dtype is torch.bool:
        visible = visible & bias
    elif bias is not None:
        scores = scores + float32_inside(bias)
    weights = _softmax(scores, visible)
    group = query.shape[1] // value.shape[1]
    output = weights @ float32_inside(value).repeat_interleave(group, dim=1)
    output = output.to(q.dtype)
    output = output.transpose(1, 2).flatten(2) if flat else output
    if call.num_outputs > 3:
        raise UnsupportedModelError("Attention must not return its scores, got four outputs.")
    return (output, key, value)[: call.num_outputs]


def _heads(x: torch.Tensor, num_heads: int | None) -> torch.Tensor:
    """`[B,S,H*D]` or `[B,H,S,D]` to `[B,H,S,D]`."""
    if x.dim() == 4:
        return x
    return x.reshape(*x.shape[:2], num_heads or 1, -1).transpose(1, 2)


def _scores(call: Call, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    scale = float(call.get("scale", 1 / math.sqrt(query.shape[-1])))
    group = query.shape[1] // key.shape[1]
    wide = float32_inside(key).repeat_interleave(group, dim=1)
    scores = scale * (float32_inside(query) @ wide.transpose(-1, -2))
    softcap = float(call.get("softcap", 0.0))
    return softcap * torch.tanh(scores / softcap) if softcap else scores


def _padded(mask: torch.Tensor, total: int) -> torch.Tensor:
    """A mask shorter than the keys hides the rest."""
    missing = total - mask.shape[-1]
    if missing <= 0 or mask.shape[-1] == 1:
        return mask
    hidden = False if mask.dtype is torch.bool else -math.inf
    return torch.cat([mask, mask.new_full((*mask.shape[:-1], missing), hidden)], dim=-1)


def _visible(
    call: Call, query: torch.Tensor, key: torch.Tensor, past: int, lengths: torch.Tensor | None
) -> torch.Tensor:
    """`[B or 1,1,Sq,T]`: causal offset past, or the valid length less the queries."""
    rows = torch.arange(query.shape[2])[:, None]
    columns = torch.arange(key.shape[2])[None, :]
    offset = torch.tensor(past).reshape(1, 1, 1, 1)
    visible = torch.ones(1, 1, query.shape[2], key.shape[2], dtype=torch.bool)
    if lengths is not None:
        visible = visible & (columns < lengths.reshape(-1, 1, 1, 1))
        offset = lengths.reshape(-1, 1, 1, 1) - query.shape[2]
    if call.get("is_causal", 0):
        visible = visible & (columns <= rows + offset)
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    if left >= 0:
        visible = visible & (columns >= rows + offset - left)
    return visible & (columns <= rows + offset + right) if right >= 0 else visible


def _softmax(scores: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    masked = scores.masked_fill(~visible, -math.inf)
    blind = (masked == -math.inf).all(dim=-1, keepdim=True)
    return torch.softmax(masked.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)


@operator("RotaryEmbedding")
def rotary(
    call: Call,
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    flat = x.dim() == 3
    y = _heads(x, call.get("num_heads", 0))
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos[:, None], sin[:, None]
    turned = call.get("rotary_embedding_dim", 0) or y.shape[-1]
    part, rest = y[..., :turned], y[..., turned:]
    if call.get("interleaved", 0):
        first, second = part[..., ::2], part[..., 1::2]
    else:
        first, second = part.chunk(2, dim=-1)
    pair = (first * cos - second * sin, first * sin + second * cos)
    rotated = (
        torch.stack(pair, -1).flatten(-2) if call.get("interleaved", 0) else torch.cat(pair, -1)
    )
    y = torch.cat([rotated, rest], dim=-1)
    return y.transpose(1, 2).flatten(2) if flat else y


def qk_norm_attention(call: Call, *given: torch.Tensor | None) -> tuple[Any, ...]:
    """QKNormAttention by the reference, in either spelling of its inputs."""
    attributes = {name: call.get(name) for name in call.node.attributes}
    roles, wanted = attributes.get("input_roles", ""), attributes.get("output_roles", "")
    names = roles.split(",") if roles else INPUT_NAMES
    inputs = {
        name: tensor for name, tensor in zip(names, given, strict=False) if tensor is not None
    }
    spec = AttentionSpec.from_attributes(attributes)
    outputs = wanted.split(",") if wanted else OUTPUT_NAMES[: call.num_outputs]
    exact = inputs["query"].dtype == EXACT
    results = reference_attention(
        spec,
        inputs,
        compute_dtype=torch.float64 if exact else torch.float32,
        outputs=OUTPUT_NAMES[: 3 if len(outputs) > 1 else 1],
    )
    return tuple(results[name] for name in outputs)
