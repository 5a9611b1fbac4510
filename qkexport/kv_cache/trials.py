"""Inputs that a model with a cache gets while it serves: a prompt, a token, a piece of a prompt.

Lengths, masks and positions must fit together, so they are made here and not drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from qkexport.kv_cache.contract import CacheLayer
from qkexport.spec import KvCache


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of a model.

    Attributes:
        past: Rows that are there already.
        new: Tokens.
        padding: Places before the first token of each batch entry.
    """

    past: int
    new: int
    padding: tuple[int, ...]

    @property
    def batch_size(self) -> int:
        return len(self.padding)


def trial_steps(longest_window: int) -> dict[str, Step]:
    """The calls to try, the longest past beyond any window."""
    beyond = longest_window + 3
    return {
        "prompt": Step(0, 5, (0,)),
        "token": Step(beyond, 1, (0, 2, beyond - 1)),
        "piece of a prompt": Step(7, 4, (0, 3)),
    }


def step_inputs(
    kind: KvCache,
    step: Step,
    layers: Sequence[CacheLayer],
    *,
    vocabulary: int,
    dtype: torch.dtype,
    seed: int = 0,
) -> list[Tensor]:
    """Inputs of one call, in the order of the contract.

    A static cache has no places before the first token: what is padding there is a shorter length.
    """
    generator = torch.Generator().manual_seed(seed)
    padding = torch.tensor(step.padding)
    ids = torch.randint(vocabulary, (step.batch_size, step.new), generator=generator)
    place = torch.arange(step.past + step.new)
    positions = (place[step.past :] - padding[:, None]).clamp_min(0)
    if kind is KvCache.CONCAT:
        mask = (place >= padding[:, None]).to(torch.int64)
        own = [ids, mask, positions]
        rows = step.past
    else:
        lengths = step.past + step.new - padding
        own = [ids, positions, lengths.clamp_min(step.new)]
        rows = step.past + step.new + 2
    pasts = [
        torch.randn(step.batch_size, layer.num_kv_heads, rows, channels, generator=generator)
        for layer in layers
        for channels in (layer.head_dim, layer.head_dim_v)
    ]
    return [*own, *(past.to(dtype) for past in pasts)]
