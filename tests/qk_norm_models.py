"""Small PyTorch models with QK-norm attention, for tests of the whole way to ONNX."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

WIDTH, HEADS, HEAD_DIM, VOCABULARY = 24, 3, 8, 59


class VisionAttention(nn.Module):
    """Per-head LayerNorm, as in vision transformers with qk_norm."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.q_norm = nn.LayerNorm(HEAD_DIM)
        self.k_norm = nn.LayerNorm(HEAD_DIM)
        self.out = nn.Linear(WIDTH, WIDTH)
        randomize_norms(self)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return torch.add(x, self.out(y.transpose(1, 2).reshape(batch, length, WIDTH)))


class MaskedAttention(nn.Module):
    """Per-head RMS norm, token ids in, a boolean or additive mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD_DIM, 1e-6), nn.RMSNorm(HEAD_DIM, 1e-6)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        randomize_norms(self)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(ids)
        q, k, v = (
            p(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        y = scaled_dot_product_attention(
            self.q_norm(q), self.k_norm(k), v, attn_mask=mask, is_causal=mask is None
        )
        return self.head.forward(y.transpose(1, 2).flatten(2))


class LearnedScale(nn.Module):
    """L2 norm and one learned temperature: query-key normalization as first proposed."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.g = nn.Parameter(torch.tensor(7.5))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = self.g * normalize(q, dim=-1) @ normalize(k, dim=-1).transpose(-1, -2)
        y: Tensor = scores.softmax(-1) @ v
        return y.transpose(1, 2).flatten(2)


class GroupedQueries(nn.Module):
    """Three query heads read one key head."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * HEAD_DIM)
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD_DIM, 1e-5), nn.RMSNorm(HEAD_DIM, 1e-5)
        randomize_norms(self)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
        k, v = self.kv(x).unsqueeze(1).chunk(2, dim=-1)
        y = scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, enable_gqa=True)
        return y.transpose(1, 2).flatten(2)


class Sinks(nn.Module):
    """A learned column of scores beside those of the keys, which the operator does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(HEADS, 1, 1))
        self.norm = nn.RMSNorm(HEAD_DIM, 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.norm(x) @ self.norm(x).transpose(-1, -2) * 0.3
        sink = self.sink.expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
        return torch.matmul(weights, x)


class Plain(nn.Module):
    """Attention without a norm."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v)


def randomize_norms(module: nn.Module) -> None:
    """Gains unlike each other: the exporter merges equal weights, and ones hide a lost gain."""
    for child in module.modules():
        if isinstance(child, nn.LayerNorm | nn.RMSNorm) and child.weight is not None:
            nn.init.normal_(child.weight, 1.0, 0.3)
