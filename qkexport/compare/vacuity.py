"""An output that does not vary tests nothing."""

from __future__ import annotations

import torch


def why_vacuous(oracle: torch.Tensor) -> str:
    """Why an output of this reference tests nothing; empty when it does test something."""
    if not oracle.numel():
        return "is empty"
    if oracle.is_floating_point() and not torch.isfinite(oracle).any():
        return "is nowhere finite"
    if oracle.numel() > 1 and is_constant(oracle):
        value = oracle.flatten()[0].item()
        return "is zero everywhere" if value == 0 else f"is {value:g} everywhere"
    return ""


def is_constant(x: torch.Tensor) -> bool:
    return bool((x == x.flatten()[0]).all())
