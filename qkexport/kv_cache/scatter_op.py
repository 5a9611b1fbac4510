"""`torch.ops.qkexport.tensor_scatter`: ONNX TensorScatter in PyTorch, which has no such operator.

    tensor_scatter(buffer [B,H,M,D], update [B,H,S,D], first_row [B]) -> [B,H,M,D]

Row s of the update of batch entry b becomes row first_row[b] + s. Rows outside of the buffer are
dropped, so that padding in front of a prompt can have negative rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("qkexport::tensor_scatter", mutates_args=())
def tensor_scatter(buffer: Tensor, update: Tensor, first_row: Tensor) -> Tensor:
    """A copy of the buffer with rows of the update written into it."""
    batch_size, num_heads, rows, channels = buffer.shape
    row = first_row[:, None] + torch.arange(update.shape[2])  # [B,S]
    row = torch.where((row >= 0) & (row < rows), row, rows)  # what is outside shares a spare row
    index = row[:, None, :, None].expand(-1, num_heads, -1, channels)
    spare = buffer.new_zeros(batch_size, num_heads, 1, channels)
    return torch.cat([buffer, spare], dim=2).scatter_(2, index, update)[:, :, :rows].contiguous()


@tensor_scatter.register_fake
def _(buffer: Tensor, update: Tensor, first_row: Tensor) -> Tensor:
    return torch.empty_like(buffer, memory_format=torch.contiguous_format)


def translate(buffer: Any, update: Any, first_row: Any) -> Any:
    """The operator as an ONNX node, which opset 24 brought."""
    import onnx
    from onnxscript import values

    schema = onnx.defs.get_schema("TensorScatter", 24)
    op = values.Op(values.Opset("", 24), "TensorScatter", schema)
    return op(buffer, update, first_row, axis=-2, mode="linear")
