"""Kinds of values that inputs are drawn from; each can show what the others hide."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final

import torch


class Values(enum.StrEnum):
    """How floating inputs are drawn; all are symmetric about zero unless they say otherwise."""

    NORMAL = "normal"
    PEAKY = "peaky"  # heavy tails: some scores stand out and the softmax is nearly one-hot
    OUTLIERS = "outliers"  # a few channels are a hundred times larger, as in language models
    ZERO_ROWS = "zero-rows"  # where a norm divides by nothing
    CONSTANT = "constant"  # every position alike: uniform attention
    TINY = "tiny"  # where epsilons count
    HUGE = "huge"  # where squares overflow float16


# 1e-10 squared is still normal in float32, and far below any epsilon; float16 has no 1e-10.
_TINY: Final[Mapping[torch.dtype, float]] = {torch.float16: 2e-4}
_HUGE: Final[Mapping[torch.dtype, float]] = {torch.float16: 300.0}
_OUTLIER: Final = 100.0


def draw_floats(
    values: Values, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Draws a tensor; float16 and bfloat16 are rounded from the float32 draw.

    Args:
        values: Kind.
        shape: Last axis channels, the one before it positions.
        dtype: Floating type.
        generator: Source of randomness.
    """
    x = torch.randn(shape, generator=generator)
    return _SHAPERS[values](x, dtype, generator).to(dtype)


def _outliers(x: torch.Tensor, _: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if not x.dim() or not x.shape[-1]:
        return x
    count = max(1, x.shape[-1] // 32)
    channels = torch.randperm(x.shape[-1], generator=generator)[:count]
    x[..., channels] *= _OUTLIER
    return x


def _zero_rows(x: torch.Tensor, _: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """About a third of the positions, the first always: causal attention begins there."""
    if x.dim() < 2 or not x.numel():
        return x
    zero = torch.rand(x.shape[:-1], generator=generator) < 0.3
    zero[..., 0] = True
    zero[..., -1] &= x.shape[-2] == 1  # leave one that is not
    return x.masked_fill(zero[..., None], 0.0)


def _constant(x: torch.Tensor, _: torch.dtype, __: torch.Generator) -> torch.Tensor:
    """One position's channels everywhere in its batch entry."""
    return x[..., :1, :].expand_as(x).clone() if x.dim() >= 2 and x.shape[-2] else x


_Shaper = Callable[[torch.Tensor, torch.dtype, torch.Generator], torch.Tensor]
_SHAPERS: Final[Mapping[Values, _Shaper]] = {
    Values.NORMAL: lambda x, *_: x,
    Values.PEAKY: lambda x, *_: 2 * x**3,
    Values.OUTLIERS: _outliers,
    Values.ZERO_ROWS: _zero_rows,
    Values.CONSTANT: _constant,
    Values.TINY: lambda x, dtype, _: x * _TINY.get(dtype, 1e-10),
    Values.HUGE: lambda x, dtype, _: x * _HUGE.get(dtype, 1e4),
}


class Padding(enum.StrEnum):
    """How much of each sequence a mask keeps."""

    NONE = "none"
    RIGHT = "right"
    LEFT = "left"
    SCATTERED = "scattered"


def draw_mask(padding: Padding, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """A bool mask, true for what is kept; every row keeps at least one position.

    Args:
        padding: Kind.
        shape: Last axis positions; all other axes are rows, and batch entries differ.
        generator: Source of randomness.
    """
    if not shape or not shape[-1]:
        return torch.ones(shape, dtype=torch.bool)
    positions, length = torch.arange(shape[-1]), shape[-1]
    lead = (*shape[:1], *[1] * (len(shape) - 2), 1) if len(shape) > 1 else (1,)
    lengths = torch.randint(1, length + 1, lead, generator=generator)
    if padding is Padding.NONE:
        return torch.ones(shape, dtype=torch.bool)
    if padding is Padding.RIGHT:
        return (positions < lengths).expand(shape).clone()
    if padding is Padding.LEFT:
        return (positions >= length - lengths).expand(shape).clone()
    mask = torch.rand(shape, generator=generator) < 0.7
    keep = torch.randint(0, length, (*shape[:-1], 1), generator=generator)
    return mask.scatter(-1, keep, True)
