"""What an output is held against."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What an output is held against.

    Attributes:
        oracle: The exact values: float64, or the reference's integers.
        baseline: PyTorch's values in the candidate's type; None leaves only the floor.
        noise: Effect of rounding noise per row (see `compare.tolerance`), or None.
        num_heads: Heads side by side along the last axis; each is then a row of its own.
        logits: Also compare the argmax of each row.
    """

    oracle: torch.Tensor
    baseline: torch.Tensor | None = None
    noise: torch.Tensor | None = None
    num_heads: int | None = None
    logits: bool = False
