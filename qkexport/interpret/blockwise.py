"""Products with weights that are widened a block at a time, so that no whole one is ever wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import torch

# Elements of a weight that are wide at a time: 32 MB in float64, enough for a fast product.
BLOCK_ELEMENTS: Final = 2**22

Widen = Callable[[torch.Tensor], torch.Tensor]


def wide_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, widen: Widen
) -> torch.Tensor:
    """`x @ weight.T + bias`.

    Args:
        x: `[..., in]` float64.
        weight: `[out, in]` as the model stores it.
        bias: `[out]` float64, or None.
        widen: Makes a block of the weight float64.
    """
    product = x.new_empty(*x.shape[:-1], weight.shape[0])
    for start, end in _blocks(weight.shape[0], weight.shape[1]):
        product[..., start:end] = x @ widen(weight[start:end]).T
    return product if bias is None else product.add_(bias)


def wide_matmul(x: torch.Tensor, weight: torch.Tensor, widen: Widen) -> torch.Tensor:
    """`x @ weight`.

    Args:
        x: `[..., in]` float64.
        weight: `[in, out]` as the model stores it.
        widen: Makes a block of the weight float64.
    """
    product = x.new_empty(*x.shape[:-1], weight.shape[1])
    for start, end in _blocks(weight.shape[1], weight.shape[0]):
        product[..., start:end] = x @ widen(weight[:, start:end])
    return product


def _blocks(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows (or columns) that hold a block of elements each."""
    step = max(1, BLOCK_ELEMENTS // max(1, width))
    for start in range(0, count, step):
        yield start, min(start + step, count)
