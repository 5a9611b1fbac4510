"""Modules that differ in one place from what fuses: they stay, or what fuses computes the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fused_model import fuse
from torch import nn
from torch.nn import functional as F  # noqa: N812  # what everyone calls it
from zoo.export import export_model, export_program, resized, worst_error
from zoo.papers import Heads, tokens

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class _Attention(nn.Module):
    """Normalized queries and keys, [B,4,S,8], handed to one of the functions below."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 4, 8)
        self.q_norm, self.k_norm = nn.RMSNorm(8, eps=1e-6), nn.RMSNorm(8, eps=1e-6)
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        return self.heads.merged(self.attend(self.q_norm(q), self.k_norm(k), v))


def _softmax_of(change: Callable[[torch.Tensor], torch.Tensor]) -> Attend:
    return lambda q, k, v: change(q @ k.mT * 0.3).softmax(-1) @ v


def _matrices(signs: tuple[int, int, int, int], *, swapped: bool = False) -> Attend:
    """Rotation by [[cos, -sin], [sin, cos]] with other signs, or of the wrong pairs."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        angle = torch.arange(x.shape[2])[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1])
        parts = (angle.cos(), angle.sin(), angle.sin(), angle.cos())
        matrix = torch.stack([s * p for s, p in zip(signs, parts, strict=True)], -1)
        matrix = matrix.reshape(1, 1, x.shape[2], 4, 2, 2)
        pairs = x.reshape(*x.shape[:-1], 4, 1, 2)
        pairs = pairs.flip(3) if swapped else pairs
        return (matrix * pairs).sum(-1).flatten(3)

    return lambda q, k, v: F.scaled_dot_product_attention(turned(q), turned(k), v)


def _sum_over_pairs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q = (q.reshape(*q.shape[:-1], 4, 2) * torch.tensor([[0.5, 2.0]])).sum(-1)
    return F.scaled_dot_product_attention(q, k[..., :4], v)


def _per_head_sum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = torch.einsum("bhqd,bhkd->bqk", q, k).softmax(-1)
    return torch.einsum("bqk,bhkd->bhqd", weights, v)


def _crossed_groups(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores of groups g and n, but values of the group n."""
    grouped = q.reshape(q.shape[0], 2, 2, *q.shape[2:])
    weights = torch.einsum("bgnqd,bgkd->bgnqk", grouped, k[:, :2]).softmax(-1)
    return torch.einsum("bgnqk,bnkd->bgnqd", weights, v[:, :2]).flatten(1, 2)


_NEVER: dict[str, Attend] = {
    "largest of the column": _softmax_of(lambda s: s - s.amax(-2, keepdim=True)),
    "half of the largest, then softcap": _softmax_of(
        lambda s: 5 * torch.tanh((s - s.amax(-1, keepdim=True)) / 5)
    ),
    "reflection": _matrices((1, 1, 1, -1)),
    "four plus signs": _matrices((1, 1, 1, 1)),
    "pairs reversed": _matrices((1, -1, 1, 1), swapped=True),
    "pairs summed": _sum_over_pairs,
    "one softmax for all heads": _per_head_sum,
    "values of another group": _crossed_groups,
}

_EQUAL: dict[str, Attend] = {
    "largest of the row": _softmax_of(lambda s: s - s.amax(-1, keepdim=True)),
    "largest of the row, masked": _softmax_of(
        lambda s: (s - s.amax(-1, keepdim=True)).masked_fill(
            s.new_ones(s.shape[-2:]).triu(1) > 0, -1e9
        )
    ),
    "turned the other way": _matrices((1, 1, -1, 1)),
    "turned": _matrices((1, -1, 1, 1)),
    "keys tiled": lambda q, k, v: F.scaled_dot_product_attention(
        q, k[:, :2].repeat(1, 2, 1, 1), v[:, :2].repeat(1, 2, 1, 1)
    ),
}


def _fused(attend: Attend) -> int:
    sample = tokens(_Attention(attend))
    fused = fuse(export_model(export_program(sample), 23))
    for change in ({}, {"batch": 1, "tokens": 3}):
        assert worst_error(fused, resized(sample, change)) < 1e-5
    assert fused.report.found <= 1
    return fused.report.fused


@pytest.mark.parametrize("name", _NEVER)
def test_what_only_looks_like_it_stays(name: str) -> None:
    assert _fused(_NEVER[name]) == 0


@pytest.mark.parametrize("name", _EQUAL)
def test_what_is_the_same_fuses(name: str) -> None:
    assert _fused(_EQUAL[name]) == 1
