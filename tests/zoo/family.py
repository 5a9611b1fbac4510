"""One row of the zoo: a tiny random-weight model of a real family, and what must be found in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch


@dataclasses.dataclass(frozen=True)
class Sample:
    """What torch.export needs."""

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None


# The form of Qwen3 and of most that came after it.
_MOST_COMMON: Final = {"qk_norm": "rms", "norm_axis": "head", "rotary": "after_norm"}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family and its expected matches.

    Attributes:
        name: Of the row.
        build: Makes the sample for an attention implementation.
        fused: Number of attentions that fuse.
        spec: Fields that every fused spec has, by name, where they are not Qwen3's; None: they
            differ from layer to layer.
        skipped: Part of the reason of each attention with a norm that stays.
        implementations: Attention implementations the model has.
        opsets: Opsets to export at.
        quick: Exported in the quick test run too; others are like one that is.
        unmasked: No fused attention reads a mask: what the model hides, the spec says.
    """

    name: str
    build: Callable[[str], Sample]
    fused: int
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ("sdpa",)
    opsets: tuple[int, ...] = (20, 23, 24)
    quick: bool = True
    unmasked: bool = False

    @property
    def expected(self) -> Mapping[str, Any]:
        """Fields that every fused spec has, by name."""
        fields = _MOST_COMMON | dict(self.spec)
        return {name: value for name, value in fields.items() if value is not None}


def randomized(module: torch.nn.Module) -> torch.nn.Module:
    """Norm gains drawn at random: the exporter merges equal initializers, as untrained gains are."""
    for name, parameter in module.named_parameters():
        if parameter.ndim <= 2 and ("norm" in name.lower() or "scale" in name.lower()):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return module.eval()
