"""One row of the zoo: a tiny random-weight model of a real family, and what must be found in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class Sample:
    """What torch.export needs."""

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None


@dataclasses.dataclass(frozen=True)
class Family:
    """A family and its expected matches.

    Attributes:
        name: Of the row.
        build: Makes the sample for an attention implementation.
        fused: Number of attentions that fuse.
        spec: Fields that every fused spec has, by name.
        skipped: Part of the reason of each attention with a norm that stays.
        implementations: Attention implementations the model has.
        opsets: Opsets to export at.
        rows: Names of the models this row stands for, for the table in the documentation.
        quick: Exported in the quick test run too; others are like one that is.
    """

    name: str
    build: Callable[[str], Sample]
    fused: int
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ("sdpa",)
    opsets: tuple[int, ...] = (20, 23, 24)
    rows: str = ""
    quick: bool = True


def randomized(module: torch.nn.Module) -> torch.nn.Module:
    """Norm gains drawn at random: the exporter merges equal initializers, as untrained gains are."""
    for name, parameter in module.named_parameters():
        if parameter.ndim <= 2 and ("norm" in name.lower() or "scale" in name.lower()):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return module.eval()
