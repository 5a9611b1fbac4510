"""Checks tensors against what a runner takes, with messages that name the input."""

from __future__ import annotations

import torch

from qkexport.errors import UsageError
from qkexport.names import suggest
from qkexport.run.runner import TensorInfo, Tensors


def checked_inputs(
    backend: str, expected: tuple[TensorInfo, ...], given: Tensors
) -> dict[str, torch.Tensor]:
    """The given tensors in the expected order.

    Raises:
        UsageError: A name is missing or unknown, or a type, rank or fixed size differs.
    """
    names = [info.name for info in expected]
    for name in given:
        if name not in names:
            message = f"Model on {backend} has no input of that name, got {name!r}."
            note = f"its inputs are {', '.join(names)}."
            raise UsageError(message, note=note, hint=suggest(name, names))
    missing = [name for name in names if name not in given]
    if missing:
        message = f"Model on {backend} needs every input, got none for {', '.join(missing)}."
        raise UsageError(message, note=f"its inputs are {', '.join(names)}.")
    for info in expected:
        _check(backend, info, given[info.name])
    return {name: given[name] for name in names}


def _check(backend: str, info: TensorInfo, tensor: torch.Tensor) -> None:
    if tensor.dtype != info.dtype:
        message = f"Input {info.name} on {backend} must be {info.dtype}, got {tensor.dtype}."
        raise UsageError(message)
    fixed = [(axis, size) for axis, size in enumerate(info.shape) if isinstance(size, int)]
    fits = tensor.dim() == len(info.shape)
    if not fits or any(tensor.shape[axis] != size for axis, size in fixed):
        accepted = ", ".join(map(str, info.shape))
        message = f"Input {info.name} on {backend} must be [{accepted}], got {list(tensor.shape)}."
        raise UsageError(message)
