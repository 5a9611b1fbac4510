"""Attention as people write it in their own repositories, each with habits of its own."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import nn
from torch.nn import functional as F

from zoo.family import Family, Sample
from zoo.papers import Heads, tokens

_HEADS: Final = 4
_DIM: Final = 8


class Packed(nn.Module):
    """One projection for all three, taken apart as each subclass does it; [B,S,32] to [B,S,32]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 3 * _HEADS * _DIM)
        self.out = nn.Linear(_HEADS * _DIM, 32)
        self.q_norm, self.k_norm = nn.LayerNorm(_DIM), nn.LayerNorm(_DIM)

    def merged(self, y: torch.Tensor) -> torch.Tensor:
        return self.out(y.transpose(1, 2).flatten(2))


class Chunked(Packed):
    """chunk, view, and MultiheadAttention's fold of heads into the batch with baddbmm."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        batch, length = x.shape[:2]
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (
            t.view(batch, length, _HEADS, _DIM)
            .transpose(1, 2)
            .reshape(batch * _HEADS, length, _DIM)
            for t in (q, k, v)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        scores = torch.baddbmm(bias, q, k.transpose(-1, -2), beta=1.0, alpha=_DIM**-0.5)
        y = torch.bmm(F.softmax(scores, dim=-1), v)
        return self.out(y.view(batch, _HEADS, length, _DIM).transpose(1, 2).reshape(x.shape))


class TimeFirst(nn.Module):
    """[S,B,C] as nn.MultiheadAttention has it by default, norms on [S,B*H,D]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3 * 32, 32) / 6)
        self.out = nn.Linear(32, 32)
        self.q_norm, self.k_norm = nn.RMSNorm(_DIM, eps=1e-6), nn.RMSNorm(_DIM, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, batch, width = x.shape
        q, k, v = F.linear(x, self.weight).split(width, dim=-1)
        q, k, v = (t.contiguous().view(length, batch * _HEADS, _DIM) for t in (q, k, v))
        q, k = self.q_norm(q).transpose(0, 1), self.k_norm(k).transpose(0, 1)
        weights = torch.softmax(torch.bmm(q / math.sqrt(_DIM), k.transpose(1, 2)), -1)
        y = torch.bmm(weights, v.transpose(0, 1))
        return self.out(y.transpose(0, 1).reshape(length, batch, width))


class Einsums(nn.Module):
    """Everything an einsum over [B,S,H,D], never transposed."""

    def __init__(self) -> None:
        super().__init__()
        shape = (32, _HEADS, _DIM)
        self.q, self.k, self.v = (nn.Parameter(torch.randn(shape) / 6) for _ in range(3))
        self.o = nn.Parameter(torch.randn(_HEADS, _DIM, 32) / 6)
        self.q_scale, self.k_scale = (nn.Parameter(torch.rand(_DIM) + 0.5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("bsc,chd->bshd", x, w) for w in (self.q, self.k, self.v))
        q = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6) * self.q_scale
        k = k * torch.rsqrt(k.square().mean(-1, keepdim=True) + 1e-6) * self.k_scale
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * _DIM**-0.5
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return torch.einsum("bqhd,hdc->bqc", y, self.o)


class GroupedEinsums(nn.Module):
    """Query heads in groups, [B,S,G,H/G,D]: keys are never repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(32, 6 * _DIM), nn.Linear(32, 2 * 2 * _DIM)
        self.q_norm, self.k_norm = nn.RMSNorm(_DIM, eps=1e-6), nn.RMSNorm(_DIM, eps=1e-6)
        self.out = nn.Linear(6 * _DIM, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q_norm(self.q(x).unflatten(-1, (2, 3, _DIM)))
        k, v = self.kv(x).unflatten(-1, (2, 2, _DIM)).unbind(2)
        scores = torch.einsum("bqgnd,bkgd->bgnqk", q, self.k_norm(k)) * _DIM**-0.5
        y = torch.einsum("bgnqk,bkgd->bqgnd", scores.softmax(-1), v)
        return self.out(y.flatten(2))


class RelativeEinsum(nn.Module):
    """A bias that is an einsum of the queries as well, added to the scores (T5 and its heirs)."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, _HEADS, _HEADS, _DIM)
        self.q_norm, self.k_norm = nn.RMSNorm(_DIM, eps=1e-6), nn.RMSNorm(_DIM, eps=1e-6)
        self.relative = nn.Parameter(torch.randn(_HEADS, _DIM, 7) / 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        q = self.q_norm(q)
        bias = torch.einsum("bhqd,hdk->bhqk", q, self.relative)
        scores = bias + torch.einsum("bhqd,bhkd->bhqk", q, self.k_norm(k)) * _DIM**-0.5
        return self.heads.merged(scores.softmax(-1) @ v)


class Normalized(nn.Module):
    """F.normalize times sqrt(D) and a gain, as lucidrains writes RMS norms; keys by expand."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 6, 2, _DIM)
        self.q_gain, self.k_gain = (nn.Parameter(torch.rand(n, 1, _DIM)) for n in (6, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        q = F.normalize(q, dim=-1) * self.q_gain * _DIM**0.5
        k = F.normalize(k, dim=-1) * self.k_gain * _DIM**0.5
        batch, _, length, _ = k.shape
        k, v = (
            t.unsqueeze(2).expand(-1, -1, 3, -1, -1).reshape(batch, 6, length, _DIM) for t in (k, v)
        )
        scores = torch.matmul(q, k.mT).div(math.sqrt(_DIM))
        keep = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(keep.logical_not(), float("-inf"))
        return self.heads.merged(scores.softmax(-1).matmul(v))


class KeysFirst(nn.Module):
    """Keys are made as [B,H,D,S], so the product needs no transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, _HEADS, _HEADS, _DIM)
        self.q_norm, self.k_norm = nn.RMSNorm(_DIM, eps=1e-6), nn.RMSNorm(_DIM, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        k = self.k_norm(k).permute(0, 1, 3, 2).contiguous()
        scores = (self.q_norm(q) * _DIM**-0.5) @ k
        scores = scores - scores.amax(-1, keepdim=True)
        return self.heads.merged(torch.softmax(scores, -1) @ v)


class Half(nn.Module):
    """float16 outside, float32 from the norm to the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, _HEADS, 2, _DIM)
        self.q_norm, self.k_norm = nn.RMSNorm(_DIM, eps=1e-6), nn.RMSNorm(_DIM, eps=1e-6)
        self.half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x.half())
        q = F.rms_norm(q.float(), (_DIM,), eps=1e-6) * self.q_norm.weight.float()
        k = F.rms_norm(k.float(), (_DIM,), eps=1e-6) * self.k_norm.weight.float()
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        weights = (q @ k.transpose(-2, -1) * _DIM**-0.5).softmax(-1, dtype=torch.float32)
        return self.heads.merged(weights.to(v.dtype) @ v)


class Matrix2x2(nn.Module):
    """Rotation by 2 x 2 matrices, as FLUX's own repository writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, _HEADS, _HEADS, _DIM)
        self.q_norm, self.k_norm = nn.RMSNorm(_DIM, eps=1e-6), nn.RMSNorm(_DIM, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        rate = 1.0 / 100 ** (torch.arange(0, _DIM, 2, device=x.device) / _DIM)
        angle = torch.arange(x.shape[1], device=x.device)[:, None] * rate
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1)
        turn = turn.unflatten(-1, (2, 2))[None, None]
        q, k = (_turned(norm(t), turn) for norm, t in ((self.q_norm, q), (self.k_norm, k)))
        return self.heads.merged(F.scaled_dot_product_attention(q, k, v))


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    pairs = x.float().reshape(*x.shape[:-1], -1, 1, 2)
    y = turn[..., 0] * pairs[..., 0] + turn[..., 1] * pairs[..., 1]
    return y.reshape(x.shape).type_as(x)


class GptNeoX(nn.Module):
    """One projection by head, [B,S,H,3*D], and a partial rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 3 * _HEADS * _DIM), nn.Linear(_HEADS * _DIM, 32)
        self.q_norm, self.k_norm = nn.LayerNorm(_DIM), nn.LayerNorm(_DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], _HEADS, 3 * _DIM).split(_DIM, dim=-1)
        q, k, v = (t.permute(0, 2, 1, 3) for t in (self.q_norm(q), self.k_norm(k), v))
        angle = torch.arange(x.shape[1], device=x.device)[:, None] * torch.tensor([1.0, 0.1])
        cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
        q, k = _partly(q, cos, sin), _partly(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.permute(0, 2, 1, 3).reshape(*x.shape[:2], -1))


def _partly(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    moved, still = x[..., :4], x[..., 4:]
    turned = torch.cat((-moved[..., 2:], moved[..., :2]), -1)
    return torch.cat((moved * cos + turned * sin, still), -1)


def _time_first() -> Sample:
    sample = tokens(TimeFirst(), 32)
    axes = {0: torch.export.Dim("tokens"), 1: torch.export.Dim("batch")}
    return Sample(sample.module, (torch.randn(7, 2, 32),), {}, (axes,))


def _chunked() -> Sample:
    sample = tokens(Chunked(), 32)
    return Sample(sample.module, (*sample.args, torch.randn(2 * _HEADS, 7, 7)), {}, None)


_LAYER: Final = {"qk_norm": "layer", "rotary": "none"}
_PLAIN: Final = {"rotary": "none"}

FAMILIES: Final = (
    Family("own baddbmm", lambda _: _chunked(), 1, _LAYER),
    Family("own time first", lambda _: _time_first(), 1, _PLAIN),
    Family("own einsums", lambda _: tokens(Einsums(), 32), 1, _PLAIN),
    Family("own grouped einsums", lambda _: tokens(GroupedEinsums(), 32), 1,
           _PLAIN | {"num_kv_heads": 2}),
    Family("own relative einsum", lambda _: Sample(tokens(RelativeEinsum()).module,
                                                   (torch.randn(2, 7, 40),)), 1, _PLAIN),
    Family("own normalize and gain", lambda _: tokens(Normalized()), 1,
           {"qk_norm": "l2", "rotary": "none", "num_kv_heads": 2}),
    Family("own keys first", lambda _: tokens(KeysFirst()), 1, _PLAIN),
    Family("own half", lambda _: tokens(Half()), 1, _PLAIN | {"num_kv_heads": 2}),
    Family("own matrices", lambda _: tokens(Matrix2x2()), 1, {"rotary_interleaved": True}),
    Family("own neox", lambda _: tokens(GptNeoX(), 32), 1, {"qk_norm": "layer", "rotary_dim": 4}),
)  # fmt: skip
