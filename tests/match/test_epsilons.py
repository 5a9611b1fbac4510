"""Epsilons large enough to be seen, and what they are in the spec."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fused_model import fuse
from torch import nn
from torch.nn import functional as F  # noqa: N812  # what everyone calls it
from zoo.export import export_model, export_program, resized, worst_error
from zoo.papers import Heads, tokens

Norm = Callable[[torch.Tensor], torch.Tensor]


class _Attention(nn.Module):
    """Queries and keys of 8 channels, normalized by a function."""

    def __init__(self, norm: Norm) -> None:
        super().__init__()
        self.heads = Heads(40, 4, 4, 8)
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        attended = F.scaled_dot_product_attention(self.norm(q), self.norm(k), v, scale=4.0)
        return self.heads.merged(attended)


# Name: norm, kind in the spec, epsilon in the spec.
_NORMS: dict[str, tuple[Norm, str, float]] = {
    "mean under the root": (
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 0.25),
        "rms",
        0.25,
    ),
    "sum under the root": (
        lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 2.0),
        "rms",
        0.25,
    ),
    "floor of the length": (lambda x: F.normalize(x, dim=-1, eps=0.75), "l2", 0.75),
}


@pytest.mark.parametrize("name", _NORMS)
def test_an_epsilon_that_shows_is_carried(name: str) -> None:
    norm, kind, epsilon = _NORMS[name]
    sample = tokens(_Attention(norm))
    fused = fuse(export_model(export_program(sample), 23))
    (match,) = fused.report.matches
    assert (match.spec.qk_norm, match.spec.qk_norm_epsilon) == (kind, epsilon)
    for change in ({}, {"batch": 1, "tokens": 3}):
        assert worst_error(fused, resized(sample, change)) < 1e-5
