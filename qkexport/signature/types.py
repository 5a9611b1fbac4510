"""Names and types of the operator's tensors, and how shapes with unknown dimensions compare."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

INPUT_NAMES: Final = (
    "query",
    "key",
    "value",
    "q_norm_weight",
    "k_norm_weight",
    "q_norm_bias",
    "k_norm_bias",
    "cos_cache",
    "sin_cache",
    "position_ids",
    "attn_mask",
    "head_scale",
    "past_key",
    "past_value",
    "kv_lengths",
    "segment_ends",
    "key_cos_cache",
    "key_sin_cache",
)
REQUIRED_INPUTS: Final = INPUT_NAMES[:3]
OUTPUT_NAMES: Final = ("output", "present_key", "present_value")

Dim = int | None  # None: not known before run time
Shape = tuple[Dim, ...]


class DType(enum.Enum):
    """Element types that inputs of the operator can have."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    BOOL = "bool"
    INT64 = "int64"

    def __str__(self) -> str:
        return str(self.value)


TENSOR_DTYPES: Final = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


@dataclasses.dataclass(frozen=True)
class TensorType:
    """Element type and shape of one input; unknown dimensions are None."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{shape_text(self.shape)}"


def shape_text(shape: Shape) -> str:
    """Brackets and commas, a question mark for an unknown dimension."""
    return "[" + ",".join("?" if dim is None else str(dim) for dim in shape) + "]"


def differ(left: Dim, right: Dim) -> bool:
    """Both are known and not equal."""
    return left is not None and right is not None and left != right


def fits(shape: Shape, target: Shape) -> bool:
    """Could be the same shape."""
    return len(shape) == len(target) and not any(map(differ, shape, target))


def broadcasts(shape: Shape, target: Shape) -> bool:
    """Could broadcast to the target as numpy does, without widening the target."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return not any(dim != 1 and differ(dim, goal) for dim, goal in zip(shape, tail, strict=True))
