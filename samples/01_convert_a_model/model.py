"""A small language model of the Qwen3 architecture, random weights, in plain PyTorch."""

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention, silu

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4, 256, 8, 4, 64, 1000


def rotated(x: Tensor, angles: Tensor) -> Tensor:  # x [B,S,N,D], angles [S,D/2]
    left, right = x.chunk(2, dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1).type_as(x)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kv_width, width = KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.q, self.k, self.v = (nn.Linear(WIDTH, n) for n in (width, kv_width, kv_width))
        self.q_norm, self.k_norm = (nn.RMSNorm(HEAD_DIM, eps=1e-6) for _ in range(2))  # QK norm
        nn.init.uniform_(self.q_norm.weight, 0.5, 1.5)  # gains of one would hide a lost gain
        nn.init.uniform_(self.k_norm.weight, 0.5, 1.5)
        self.out = nn.Linear(width, WIDTH)
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = (p(y).unflatten(-1, (-1, HEAD_DIM)) for p in (self.q, self.k, self.v))
        q, k = rotated(self.q_norm(q), angles), rotated(self.k_norm(k), angles)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return torch.add(x, self.down(silu(self.gate(x)) * self.up(x)))


class Qwen3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        frequencies = 1e4 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = torch.arange(input_ids.shape[1])[:, None] * frequencies
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, angles)
        return self.head.forward(x)


def qwen3() -> tuple[nn.Module, tuple[Tensor], dict[str, Tensor], dict[str, dict[int, Dim]]]:
    """The model, inputs to trace it with, and which of their axes may vary."""
    torch.manual_seed(59)  # the same weights at every call
    axes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=1, max=1024)}
    return Qwen3(), (torch.randint(VOCABULARY, (2, 16)),), {}, {"input_ids": axes}
