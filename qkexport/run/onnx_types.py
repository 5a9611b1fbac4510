"""Element types of ONNX and ONNX Runtime as PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch

# ONNX TensorProto.DataType numbers: float8 and string types have no use here.
TORCH_DTYPES: Final[Mapping[int, torch.dtype]] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
ONNX_DTYPES: Final[Mapping[torch.dtype, int]] = {
    dtype: number for number, dtype in TORCH_DTYPES.items()
}
_ORT_NAMES: Final[Mapping[str, torch.dtype]] = {
    "float": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "double": torch.float64,
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
}


def torch_dtype(ort_type: str) -> torch.dtype:
    """`tensor(float)` and the like, as ONNX Runtime names types."""
    return _ORT_NAMES[ort_type.removeprefix("tensor(").removesuffix(")")]
