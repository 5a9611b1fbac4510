"""Operators that look up and write by index."""

from __future__ import annotations

import itertools

import torch

from qkexport.interpret.call import Call, operator


def _wrapped(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Negative indices count from the end."""
    return torch.where(indices < 0, indices + size, indices).long()


@operator("Gather")
def gather(call: Call, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    axis = call.get("axis", 0) % x.dim()
    flat = _wrapped(indices, x.shape[axis]).flatten()
    picked = x.index_select(axis, flat)
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(call: Call, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    axis = call.get("axis", 0)
    return x.gather(axis, _wrapped(indices, x.shape[axis]))


@operator("GatherND")
def gather_nd(call: Call, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    batch = call.get("batch_dims", 0)
    depth = indices.shape[-1]
    rest = indices.dim() - 1 - batch
    selectors = [
        torch.arange(size).reshape([-1 if i == axis else 1 for i in range(batch + rest)])
        for axis, size in enumerate(x.shape[:batch])
    ]
    selectors += [_wrapped(indices[..., i], x.shape[batch + i]) for i in range(depth)]
    return x[tuple(selectors)]


@operator("ScatterND")
def scatter_nd(
    call: Call, x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    y = x.clone()
    where = tuple(_wrapped(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
    kind = call.get("reduction", "none")
    if kind in ("none", "add"):
        return y.index_put_(where, updates, accumulate=kind == "add")
    combine = {"mul": torch.mul, "max": torch.maximum, "min": torch.minimum}[kind]
    for position in itertools.product(*map(range, indices.shape[:-1])):
        at = tuple(axis[position] for axis in where)  # one by one: indices may repeat
        y[at] = combine(y[at], updates[position])
    return y


@operator("ScatterElements", "Scatter")
def scatter_elements(
    call: Call, x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    axis = call.get("axis", 0)
    where, kind = _wrapped(indices, x.shape[axis]), call.get("reduction", "none")
    if kind == "none":
        return x.scatter(axis, where, updates)
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[kind]
    return x.scatter_reduce(axis, where, updates, reduce=name)


@operator("TensorScatter")
def tensor_scatter(
    call: Call, past: torch.Tensor, update: torch.Tensor, starts: torch.Tensor | None = None
) -> torch.Tensor:
    """Writes `update` into `past` along an axis, at a position for each batch entry."""
    axis = call.get("axis", -2) % past.dim()
    present = past.clone()
    first = torch.zeros(past.shape[0], dtype=torch.int64) if starts is None else starts
    for entry, start in enumerate(first.tolist()):
        rows = torch.arange(start, start + update.shape[axis])
        if call.get("mode", "linear") == "circular":
            rows = rows % past.shape[axis]
        present[entry].index_copy_(axis - 1, rows, update[entry])
    return present


@operator("NonZero")
def nonzero(_: Call, x: torch.Tensor) -> torch.Tensor:
    return x.nonzero().T.contiguous()


@operator("OneHot")
def one_hot(
    call: Call, indices: torch.Tensor, depth: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    size = int(depth)
    axis = call.get("axis", -1) % (indices.dim() + 1)
    hot = _wrapped(indices, size).unsqueeze(axis) == torch.arange(size).reshape(
        [-1 if i == axis else 1 for i in range(indices.dim() + 1)]
    )
    return torch.where(hot, values[1], values[0])
