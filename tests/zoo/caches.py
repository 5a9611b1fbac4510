"""Models with keys that are not made on the spot: caches, shared keys, keys of other streams."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from zoo.family import Family, Sample, randomized
from zoo.language import causal_lm
from zoo.papers import Heads


class _Cached(nn.Module):
    """A causal LM that takes and returns its cache as plain tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, key: Any, value: Any) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache([(key, value)])
        result = self.model(input_ids=ids, cache=cache, use_cache=True)
        layer = cache.layers[0]
        return result.logits, layer.keys, layer.values


def qwen3_cache(implementation: str) -> Sample:
    """Qwen3 with past keys and values, concatenated."""
    plain = causal_lm("qwen3", implementation, num_hidden_layers=1)
    args = (
        torch.randint(3, 64, (2, 3)),
        torch.randn(2, 2, 5, 16),
        torch.randn(2, 2, 5, 16),
    )
    batch, new, past = (torch.export.Dim(name) for name in ("batch", "seqlen", "past"))
    shapes = ({0: batch, 1: new}, {0: batch, 2: past}, {0: batch, 2: past})
    return Sample(_Cached(plain.module).eval(), args, {}, shapes)


class SharedKeys(nn.Module):
    """Two layers of queries on the keys of one, normalized once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Heads(40, 4, 2, 8), Heads(40, 4, 2, 8)
        self.norms = nn.ModuleList(nn.RMSNorm(8, eps=1e-6) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.first(x)
        k = self.norms[1](k)
        y = F.scaled_dot_product_attention(self.norms[0](q), k, v, enable_gqa=True)
        x = x + self.first.merged(y)
        q = self.norms[2](self.second(x)[0])
        return self.second.merged(F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


class OneSided(nn.Module):
    """A norm on one side only."""

    def __init__(self, side: str) -> None:
        super().__init__()
        self.heads = Heads(40, 5, 5, 8)
        self.norm = nn.LayerNorm(8)
        self.side = side

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        q, k = (self.norm(q), k) if self.side == "q" else (q, self.norm(k))
        return self.heads.merged(F.scaled_dot_product_attention(q, k, v))


class Merged(nn.Module):
    """Keys of a second stream joined to those of the first, as T5Gemma 2's decoder has them."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 4, 8)
        self.q_norm, self.k_norm = nn.RMSNorm(8, eps=1e-6), nn.RMSNorm(8, eps=1e-6)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        _, k2, v2 = self.heads(context)
        k = torch.cat([self.k_norm(k), self.k_norm(k2)], dim=2)
        y = F.scaled_dot_product_attention(self.q_norm(q), k, torch.cat([v, v2], dim=2))
        return self.heads.merged(y)


def _tokens(module: nn.Module, *lengths: int) -> Sample:
    batch = torch.export.Dim("batch")
    args = tuple(torch.randn(2, length, 40) for length in lengths)
    shapes = tuple(
        {0: batch, 1: torch.export.Dim(name)}
        for name, _ in zip(("tokens", "keys"), lengths, strict=False)
    )
    return Sample(randomized(module), args, {}, shapes)


_QUERY_ONLY: Final = {"qk_norm": "layer", "rotary": "none", "normalize_key": False}

FAMILIES: Final = (
    Family("qwen3 cache", qwen3_cache, 1, {"num_kv_heads": 2},
           implementations=("sdpa", "eager")),
    Family("shared keys", lambda _: _tokens(SharedKeys(), 7), 2, {"rotary": "none"}),
    Family("query norm only", lambda _: _tokens(OneSided("q"), 7), 1, _QUERY_ONLY),
    Family("key norm only", lambda _: _tokens(OneSided("k"), 7), 0, skipped=("only the keys are normalized",)),
    Family("merged attention", lambda _: _tokens(Merged(), 7, 4), 0, skipped=("query and key join different streams",)),
)  # fmt: skip
