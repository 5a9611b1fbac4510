"""A small language model of the Qwen3 architecture, random weights, in plain PyTorch."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4, 256, 8, 4, 64, 1000


def rotated(x: Tensor, angles: Tensor) -> Tensor:  # x [B,S,N,D], angles [S,D/2]
    left, right = x.chunk(2, dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD_DIM, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)
        self.q_norm = nn.RMSNorm(HEAD_DIM, eps=1e-6)  # what makes this QK-norm attention
        self.k_norm = nn.RMSNorm(HEAD_DIM, eps=1e-6)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (-1, HEAD_DIM)) for p in (self.q, self.k, self.v))
        q, k = rotated(self.q_norm(q), angles), rotated(self.k_norm(k), angles)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return torch.add(x, self.out(y.transpose(1, 2).flatten(2)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        x = self.attention(self.norm(x), angles)
        return torch.add(x, self.down(silu(self.gate(x)) * self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        frequencies = 1e6 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = torch.arange(input_ids.shape[1])[:, None] * frequencies
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, angles)
        return self.head.forward(x)
