"""Attention as papers state it: no library between the formula and the graph."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from zoo.family import Family, Sample, randomized


class Heads(nn.Module):
    """Projections split into heads, [B,S,C] -> [B,H,S,D]."""

    def __init__(self, width: int, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.q = nn.Linear(width, num_heads * head_dim, bias=False)
        self.k = nn.Linear(width, num_kv_heads * head_dim, bias=False)
        self.v = nn.Linear(width, num_kv_heads * head_dim, bias=False)
        self.o = nn.Linear(num_heads * head_dim, width, bias=False)

    def forward(
        self, x: torch.Tensor, context: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        context = x if context is None else context
        pairs = ((self.q, x), (self.k, context), (self.v, context))
        return tuple(
            linear(item).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for linear, item in pairs
        )

    def merged(self, y: torch.Tensor) -> torch.Tensor:
        return self.o(y.transpose(1, 2).flatten(2))


class Henry2020(nn.Module):
    """Queries and keys of length one, a learned scale in the place of 1 / sqrt(D)."""

    def __init__(self, implementation: str) -> None:
        super().__init__()
        self.heads = Heads(40, 5, 5, 8)
        self.g = nn.Parameter(torch.tensor(7.25))
        self.eager = implementation == "eager"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if self.eager:
            return self.heads.merged((q @ k.transpose(-1, -2) * self.g).softmax(-1) @ v)
        return self.heads.merged(F.scaled_dot_product_attention(q * self.g, k, v, scale=1.0))


class GroupedQueries(nn.Module):
    """RMS norm and enable_gqa, causal."""

    def __init__(self, implementation: str) -> None:
        super().__init__()
        self.heads = Heads(40, 6, 2, 8)
        self.q_norm, self.k_norm = nn.RMSNorm(8, eps=1e-5), nn.RMSNorm(8, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        q, k = self.q_norm(q), self.k_norm(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.heads.merged(y)


class TwoEpsilons(nn.Module):
    """Norms that differ in their epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 5, 5, 8)
        self.q_norm, self.k_norm = nn.RMSNorm(8, eps=1e-5), nn.RMSNorm(8, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.heads.merged(y)


def tokens(module: nn.Module, width: int = 40) -> Sample:
    """A module on [batch, tokens, width], both dynamic."""
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    return Sample(randomized(module), (torch.randn(2, 7, width),), {}, (axes,))


def x_transformers(implementation: str, causal: bool = True, **options: Any) -> Sample:
    """An attention layer of x-transformers."""
    from x_transformers.x_transformers import Attention

    module = Attention(
        40, dim_head=8, heads=5, causal=causal, flash=implementation == "sdpa", **options
    )
    for name, parameter in module.named_parameters():
        if "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return Sample(_First(module).eval(), (torch.randn(2, 7, 40),), {}, None)


class _First(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.module(x)
        return result[0] if isinstance(result, tuple) else result


FAMILIES: Final = (
    Family(
        "henry 2020",
        lambda implementation: tokens(Henry2020(implementation)),
        1,
        {"qk_norm": "l2", "rotary": "none", "scale": 7.25, "qk_norm_epsilon": 1e-12},
        implementations=("sdpa", "eager"),
    ),
    Family(
        "enable_gqa",
        lambda implementation: tokens(GroupedQueries(implementation)),
        1,
        {"rotary": "none", "num_heads": 6, "num_kv_heads": 2},
    ),
    Family(
        "x-transformers l2",
        functools.partial(x_transformers, qk_norm=True),
        1,
        {"qk_norm": "l2", "rotary": "none", "scale": 10.0},
        implementations=("sdpa", "eager"),
    ),
    Family(
        "x-transformers dim scale",
        functools.partial(x_transformers, qk_norm=True, qk_norm_dim_scale=True),
        1,
        {"qk_norm": "l2", "rotary": "none"},
        implementations=("sdpa", "eager"),
        quick=False,
    ),
    Family(
        "x-transformers rms",
        functools.partial(x_transformers, qk_rmsnorm=True),
        1,
        {"qk_norm": "l2", "rotary": "none"},
        implementations=("sdpa", "eager"),
        quick=False,
    ),
    Family(
        "x-transformers key rms",
        functools.partial(x_transformers, k_rmsnorm=True),
        0,
        skipped=("only the keys are normalized",),
        implementations=("sdpa", "eager"),
        quick=False,
    ),
    Family(
        "two epsilons",
        lambda _: tokens(TwoEpsilons()),
        0,
        skipped=("norms have different epsilons",),
    ),
    Family(
        "x-transformers groups",
        functools.partial(x_transformers, qk_norm=True, qk_norm_groups=2),
        0,
        skipped=("the norm runs over part of each head",),
        implementations=("sdpa", "eager"),
    ),
)
