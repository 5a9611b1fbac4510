"""Scales that are learned or depend on the position, and rotations by real arithmetic."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import nn
from torch.nn import functional as F

from zoo.family import Family
from zoo.papers import Heads, tokens


class LogTemperature(nn.Module):
    """Queries scaled by a logarithm of their position (Inkling, Llama 4 without positions)."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 2, 8)
        self.q_norm, self.k_norm = nn.RMSNorm(8, eps=1e-6), nn.RMSNorm(8, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        position = torch.arange(x.shape[1], device=x.device) + 1.0
        heat = torch.log1p(torch.floor(position / 3)) * 0.1 + 1.0
        q = self.q_norm(q) * heat[None, None, :, None]
        y = F.scaled_dot_product_attention(q, self.k_norm(k), v, scale=1 / 8, enable_gqa=True)
        return self.heads.merged(y)


class KeyTemperature(nn.Module):
    """Length sqrt(D) and a temperature for each key head (Zaya)."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 2, 8)
        self.heat_scale = nn.Parameter(torch.rand(2) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        floor = torch.finfo(torch.float32).eps
        q = q * (math.sqrt(8) / q.norm(dim=-1, keepdim=True).clamp_min(floor))
        k = k * (math.sqrt(8) / k.norm(dim=-1, keepdim=True).clamp_min(floor))
        k = k * self.heat_scale[None, :, None, None]
        return self.heads.merged(F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


class Capped(nn.Module):
    """Scores bent by tanh, then a mask (Gemma 2's softcap with a norm)."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 4, 8)
        self.q_norm, self.k_norm = nn.RMSNorm(8, eps=1e-6), nn.RMSNorm(8, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        scores = self.q_norm(q) @ self.k_norm(k).transpose(-1, -2) * 0.3
        scores = torch.tanh(scores / 5.0) * 5.0
        rows = torch.arange(x.shape[1], device=x.device)
        scores = scores.masked_fill(rows[None, :] > rows[:, None], -1e9)
        return self.heads.merged(scores.softmax(-1) @ v)


class BatchedHeads(nn.Module):
    """Heads folded into the batch, as older diffusers multiply them."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 4, 8)
        self.q_norm, self.k_norm = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.flatten(0, 1) for t in self.heads(x))
        scores = torch.bmm(self.q_norm(q), self.k_norm(k).transpose(1, 2)) * 8**-0.5
        y = torch.bmm(scores.softmax(-1), v)
        return self.heads.merged(y.unflatten(0, (-1, 4)))


FAMILIES: Final = (
    Family("log temperature", lambda _: tokens(LogTemperature()), 1, {"rotary": "none", "scale": 1 / 8}),
    Family("key temperature", lambda _: tokens(KeyTemperature()), 1,
           {"qk_norm": "l2", "rotary": "none"}),
    Family("softcap", lambda _: tokens(Capped()), 1,
           {"rotary": "none", "softcap": 5.0, "scale": 0.3}),
    Family("heads in the batch", lambda _: tokens(BatchedHeads()), 1,
           {"qk_norm": "layer", "rotary": "none", "num_heads": 4}),
)  # fmt: skip
