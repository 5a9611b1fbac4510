"""A vision attention block with LayerNorm on every query and key; the same weights each time."""

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention

WIDTH, HEADS, HEAD_DIM = 64, 4, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.q_norm, self.k_norm = nn.LayerNorm(HEAD_DIM), nn.LayerNorm(HEAD_DIM)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, patches: Tensor) -> Tensor:  # [batch, tokens, WIDTH]
        x = self.qkv(self.norm(patches)).unflatten(-1, (3, HEADS, HEAD_DIM))
        q, k, v = (y.transpose(1, 2) for y in x.unbind(2))
        y = scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return torch.add(patches, self.out(y.transpose(1, 2).flatten(2)))


def vision() -> tuple[Block, tuple[Tensor], dict[str, Tensor], dict[str, dict[int, Dim]]]:
    torch.manual_seed(0)
    block = Block()
    for norm in (block.q_norm, block.k_norm):
        nn.init.normal_(norm.weight, 1.0, 0.3)  # as after training
    axes = {0: Dim("batch", max=8), 1: Dim("tokens", max=256)}
    return block, (torch.randn(2, 50, WIDTH),), {}, {"patches": axes}
