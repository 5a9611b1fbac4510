"""An encoder with QK norm, as a vision transformer has it: LayerNorm on every query and key."""

from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention

WIDTH, NUM_HEADS = 128, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.q_norm, self.k_norm = (nn.LayerNorm(WIDTH // NUM_HEADS) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        y = scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return torch.add(x, self.out(y.transpose(1, 2).flatten(2)))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            image = block(image)
        return image


def encoder() -> tuple[nn.Module, tuple[torch.Tensor], dict[str, torch.Tensor], dict[str, Any]]:
    """The model, inputs to trace it with, and which of their axes may vary."""
    torch.manual_seed(59)  # the same weights at every call
    axes = {0: Dim("batch", min=1, max=64), 1: Dim("tokens", min=1, max=1024)}
    return Encoder(), (torch.randn(2, 16, WIDTH),), {}, {"image": axes}
