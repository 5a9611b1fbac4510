"""Attention modules in the many ways people write them, one for each plan of the fuzzer.

The plans are those of `graphs`, read as PyTorch code.
"""

from __future__ import annotations

import torch
from graphs import Plan
from torch import nn
from torch.nn import functional as F  # noqa: N812  # what everyone calls it

_WIDTH = 10
EPSILON = 1e-5

# Those of the plans that have a form here.
MUTATIONS = (
    "norm_axis", "mean_kept", "epsilon_outside", "gain_after_rope", "channel_scale_after_rope",
    "key_only", "epsilons_differ", "kinds_differ", "softmax_axis", "heads_mixed", "clipped",
    "key_by_token", "squared_gain_by_token", "probabilities_scaled", "offset_query",
    "one_sign", "normed_twice", "bias_by_token", "key_rotated_twice",
)  # fmt: skip


class TorchAttention(nn.Module):
    """x [B,S,10] (and y [B,T,10] for cross attention) to [B,S,H*Dv].

    Args:
        plan: What to do and how to write it.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        p = self.plan = plan
        sizes = {"q": p.heads * p.head_dim, "k": p.kv_heads * p.head_dim,
                 "v": p.kv_heads * p.value_dim}  # fmt: skip
        self.linears = nn.ModuleDict(
            {n: nn.Linear(_WIDTH, s, bias=False) for n, s in sizes.items()}
        )
        heads = {"q": p.heads, "k": p.kv_heads}
        self.gains = nn.ParameterDict({n: self._gain(h) for n, h in heads.items()})
        self.biases = nn.ParameterDict({n: self._gain(h) for n, h in heads.items()})
        self.heat = nn.Parameter(torch.rand(p.heads, 1, 1) + 0.5)
        self.frequencies = nn.Buffer(torch.rand(p.head_dim // 2) + 0.1)

    def _gain(self, heads: int) -> nn.Parameter:
        p = self.plan
        if p.layout == "hidden":
            shape: tuple[int, ...] = (heads * p.head_dim,)
        elif p.gain == "head_channel":
            shape = (heads, 1, p.head_dim) if p.layout == "bhsd" else (heads, p.head_dim)
        else:
            shape = (p.head_dim,)
        return nn.Parameter(torch.rand(shape) + 0.5)

    @property
    def num_inputs(self) -> int:
        return 1 if self.plan.key_tokens == self.plan.query_tokens else 2

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        source = x if y is None else y
        q = self._side("q", x, self.plan.heads)
        k = self._side("k", source, self.plan.kv_heads)
        v = self.linears["v"](source).unflatten(-1, (self.plan.kv_heads, -1)).transpose(1, 2)
        return self._attend(q, k, v).transpose(1, 2).flatten(2)

    def _side(self, name: str, x: torch.Tensor, heads: int) -> torch.Tensor:
        p = self.plan
        x = self.linears[name](x)
        batch, rows = x.shape[:2]
        if p.layout == "hidden":
            x = self._normed(name, x).view(batch, rows, heads, p.head_dim).transpose(1, 2)
        elif p.layout == "merged":
            x = self._normed(name, x.reshape(-1, heads, p.head_dim))
            x = x.reshape(batch, rows, heads, p.head_dim).transpose(1, 2)
        else:
            x = x.view(batch, rows, heads, p.head_dim)
            x = x.transpose(1, 2) if p.layout == "bhsd" else x
            token_axis = 2 if p.layout == "bhsd" else 1
            if p.rope_first:
                x = self._rotated(x, token_axis)
            x = self._normed(name, x)
            x = x if p.layout == "bhsd" else x.transpose(1, 2)
        if not p.rope_first or p.layout == "merged":
            x = self._rotated(x, 2)
        x = self._mutated(name, x)
        if name == "q" and p.temperature == "head_query":
            x = x * self.heat
        return x * 0.7 if name == "q" and p.scale == "query" else x

    def _normed(self, name: str, x: torch.Tensor) -> torch.Tensor:
        p = self.plan
        if p.mutation == "key_only" and name == "q":
            return 0.9 * x  # torch.export makes a wrong guard of two reshapes with nothing between
        x = self._divided(name, x)
        if p.gain == "none" or p.mutation == "gain_after_rope":
            return x
        gain = self.gains[name] + 1 if p.gain == "one_plus" else self.gains[name]
        return x * gain + self.biases[name] if p.bias else gain * x

    def _divided(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """The norm without its gain, or what looks like one."""
        mutation = self.plan.mutation
        if mutation == "norm_axis":
            return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + EPSILON)
        if mutation == "mean_kept":
            return x * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + EPSILON)
        if mutation == "epsilon_outside":
            return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.05)
        if mutation == "epsilons_differ" and name == "k":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.01)
        if mutation == "kinds_differ" and name == "k":
            return _rms(x) if self.plan.norm.startswith("l2") else F.normalize(x, dim=-1)
        x = _NORMS[self.plan.norm](x)
        return _NORMS[self.plan.norm](x + 0.3) if mutation == "normed_twice" else x

    def _mutated(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """What a mutation puts between rotation and scores, [B,H,S,D]."""
        mutation = self.plan.mutation
        gain = self.biases[name].flatten()[: x.shape[-1]]
        if name == "q":
            if mutation in ("gain_after_rope", "channel_scale_after_rope"):
                return x * gain
            if mutation == "heads_mixed":
                return x.roll(1, 1)
            if mutation == "offset_query":
                return x + gain
            if mutation == "squared_gain_by_token":
                return x * x
            if mutation == "bias_by_token":
                return x + x.mean(-1, keepdim=True)
        elif mutation == "key_by_token":
            return x * x.mean(-1, keepdim=True)
        elif mutation == "key_rotated_twice":
            return self._rotated(x, 2)
        return x.clamp(-0.7, 0.7) if mutation == "clipped" else x

    def _rotated(self, x: torch.Tensor, token_axis: int) -> torch.Tensor:
        kind = self.plan.rope
        if kind == "none":
            return x
        angle = torch.arange(x.shape[token_axis])[:, None] * self.frequencies
        angle = angle if token_axis == 2 else angle[:, None, :]
        if kind in ("half", "half_flipped", "op"):
            if self.plan.mutation == "one_sign":
                left, right = x.chunk(2, -1)
                cos = torch.cat([angle.cos(), angle.cos()], -1)
                sin = torch.cat([angle.sin(), angle.sin()], -1)
                return x * cos + torch.cat([right, left], -1) * sin
            return _half(x, angle.cos(), angle.sin(), flipped=kind == "half_flipped")
        if kind == "partial":
            width = self.plan.head_dim // 2
            part = angle[..., : width // 2]
            turned = _half(x[..., :width], part.cos(), part.sin(), flipped=False)
            return torch.cat([turned, x[..., width:]], -1)
        if kind == "prefix":
            still, moved = (
                x.narrow(token_axis, 0, 1),
                x.narrow(token_axis, 1, x.shape[token_axis] - 1),
            )
            angle = angle[1:]
            return torch.cat([still, _stacked(moved, angle.cos(), angle.sin())], token_axis)
        if kind == "scatter":
            return _strided(x, angle.cos(), angle.sin())
        return _stacked(x, angle.cos(), angle.sin())

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        p = self.plan
        keep = None
        if p.mask != "none":
            rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
            keep = (columns <= rows) | (columns == 0)
        plain = p.mutation not in ("softmax_axis", "probabilities_scaled")
        if p.fused_attention and plain and p.temperature != "head_logits" and not p.softcap:
            grouped = p.heads != p.kv_heads
            mask = keep.float() if keep is not None and p.mask == "added" else keep
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, scale=0.4, enable_gqa=grouped
            )
        times = p.heads // p.kv_heads
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        return self._written(q, k, v, keep)

    def _written(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor | None
    ) -> torch.Tensor:
        p = self.plan
        if p.key == "einsum":
            scores = torch.einsum("bhid,bhjd->bhij", q, k)
        else:
            scores = q @ k.transpose(-1, -2)
        scores = scores / 2.5 if p.scale == "logits_div" else scores * 0.35
        if p.temperature == "head_logits":
            scores = scores * self.heat
        if p.softcap:
            scores = torch.tanh(scores / 5) * 5
        if keep is not None:
            low = -torch.inf if p.mask == "where_inf" else torch.finfo(scores.dtype).min
            scores = (
                scores + torch.where(keep, 0.0, low)
                if p.mask in ("added", "where_added")
                else scores.masked_fill(~keep, low)
            )
        weights = scores.softmax(-2 if p.mutation == "softmax_axis" else -1)
        if p.mutation == "probabilities_scaled":
            weights = weights * self.heat
        return weights @ v


def _half(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, flipped: bool) -> torch.Tensor:
    cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    left, right = x.chunk(2, -1)
    turned = torch.cat([right, -left], -1) if flipped else torch.cat([-right, left], -1)
    return x * cos + turned * sin


def _stacked(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def _strided(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    result = torch.empty_like(x)
    result[..., 0::2] = even * cos - odd * sin
    result[..., 1::2] = even * sin + odd * cos
    return result


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)


def _layer(x: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered * torch.rsqrt(centered.pow(2).mean(-1, keepdim=True) + EPSILON)


def _sum(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPSILON)


_NORMS = {
    "rms_reciprocal": _rms,
    "rms_div": lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPSILON),
    "rms_pow": lambda x: x * (x.square().mean(-1, keepdim=True) + EPSILON).pow(-0.5),
    "rms_op": lambda x: F.rms_norm(x, x.shape[-1:], eps=EPSILON),
    "layer_op": lambda x: F.layer_norm(x, x.shape[-1:], eps=EPSILON),
    "layer_written": _layer,
    "layer_sub_rms_op": lambda x: _rms(x - x.mean(-1, keepdim=True)),
    "l2_clip": lambda x: F.normalize(x, dim=-1),
    "l2_max": lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-6),
    "l2_sum": _sum,
    "l2_inverse": lambda x: x * (2.0 / x.norm(dim=-1, keepdim=True).clamp_min(1e-6)),
}
