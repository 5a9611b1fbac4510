"""Tensors of the ONNX IR as PyTorch tensors."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from qkexport.run.onnx_types import TORCH_DTYPES

if TYPE_CHECKING:
    import onnx_ir as ir


def to_torch(tensor: ir.TensorProtocol) -> torch.Tensor:
    """The tensor's values; memory is shared where it can be, so do not write to it."""
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):  # torch.onnx wraps a module's own parameters
        return raw.detach()
    dtype = TORCH_DTYPES[int(tensor.dtype)]
    array = tensor.numpy()
    if dtype is torch.bfloat16:
        array = array.view("uint16")
    with warnings.catch_warnings():
        # external data is mapped read-only, and nothing here writes
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array).view(dtype)
