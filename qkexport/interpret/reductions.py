"""Sums, extremes and sorting along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch

from qkexport.interpret.call import OPERATORS, Call, ints, operator

Reduction = Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]


def _product(x: torch.Tensor, axes: tuple[int, ...], keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(dim=axis, keepdim=keep)
    return x


def _extreme(
    function: Callable[..., torch.Tensor],
    of_nothing: float,
    x: torch.Tensor,
    axes: tuple[int, ...],
    keep: bool,
) -> torch.Tensor:
    if all(x.shape[axis] for axis in axes):
        return function(x, axes, keepdim=keep)
    if not x.is_floating_point():
        low, high = (
            (0, 1)
            if x.dtype is torch.bool
            else (
                torch.iinfo(x.dtype).min,
                torch.iinfo(x.dtype).max,
            )
        )
        of_nothing = low if of_nothing < 0 else high
    shape = x.sum(axes, keepdim=keep).shape
    return torch.full(shape, of_nothing, dtype=x.dtype)


_REDUCTIONS: Final[dict[str, Reduction]] = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: _extreme(torch.amax, -math.inf, x, axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: _extreme(torch.amin, math.inf, x, axes, keep),
    "ReduceProd": _product,
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep, dtype=x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
}


def _reduction(function: Reduction) -> Callable[..., torch.Tensor]:
    def evaluate(call: Call, x: torch.Tensor, axes: torch.Tensor | None = None) -> torch.Tensor:
        chosen = list(call.get("axes") or ()) if axes is None else ints(axes)
        if not chosen:
            if call.get("noop_with_empty_axes", 0):
                return x
            chosen = list(range(x.dim()))
        if not chosen:
            return function(x[None], (0,), False)  # a scalar
        return function(x, tuple(chosen), bool(call.get("keepdims", 1)))

    return evaluate


OPERATORS.update({name: _reduction(function) for name, function in _REDUCTIONS.items()})


@operator("Softmax", "LogSoftmax")
def softmax(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Before opset 13 everything from the axis on is one row."""
    function = torch.softmax if call.node.op_type == "Softmax" else torch.log_softmax
    if call.opset >= 13:
        return function(x, dim=call.get("axis", -1))
    axis = call.get("axis", 1) % x.dim()
    return function(x.flatten(axis), dim=-1).reshape(x.shape)


@operator("ArgMax", "ArgMin")
def arg_extreme(call: Call, x: torch.Tensor) -> torch.Tensor:
    function = torch.argmax if call.node.op_type == "ArgMax" else torch.argmin
    axis, keep = int(call.get("axis", 0)), bool(call.get("keepdims", 1))
    if not call.get("select_last_index", 0):
        return function(x, dim=axis, keepdim=keep)
    return x.shape[axis] - 1 - function(x.flip(axis), dim=axis, keepdim=keep)


@operator("CumSum")
def cumulative_sum(call: Call, x: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
    dim = int(axis)
    if call.get("reverse", 0):
        x = x.flip(dim)
    total = x.cumsum(dim, dtype=x.dtype)
    if call.get("exclusive", 0):
        total = total - x
    return total.flip(dim) if call.get("reverse", 0) else total


@operator("TopK")
def top_k(call: Call, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A stable sort: of equal values the one with the lower index comes first."""
    axis, largest = call.get("axis", -1), bool(call.get("largest", 1))
    values, indices = x.sort(dim=axis, descending=largest, stable=True)
    count = int(k)
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)
