"""What a body is written for: the runtime that will read it and the opset it may use."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

from qkexport.errors import UnsupportedModelError, UsageError

OLDEST_OPSET: Final = 17  # LayerNormalization
NEWEST_OPSET: Final = 25
FUSED_NORM_OPSET: Final = 23  # RMSNormalization, RotaryEmbedding and Attention


class Runtime(enum.StrEnum):
    """Who reads the body. No one spelling serves both."""

    ORT = "ort"
    TENSORRT = "tensorrt"

    @classmethod
    def of(cls, name: Runtime | str) -> Runtime:
        """The runtime of that name.

        Raises:
            UsageError: There is none.
        """
        if str(name) not in list(cls):
            accepted = ", ".join(repr(str(runtime)) for runtime in cls)
            message = f"Runtime of a model is not known, got {str(name)!r}."
            raise UsageError(message, note=f"accepted: {accepted}.")
        return cls(str(name))


@dataclasses.dataclass(frozen=True)
class Target:
    """Runtime and opset of a body.

    Raises:
        UnsupportedModelError: The opset is outside 17..25.
    """

    runtime: Runtime
    opset: int

    def __post_init__(self) -> None:
        if not OLDEST_OPSET <= self.opset <= NEWEST_OPSET:
            message = f"Opset of a body must be {OLDEST_OPSET} to {NEWEST_OPSET}, got {self.opset}."
            raise UnsupportedModelError(
                message, hint="convert the model to a supported opset, 24 for example."
            )

    @property
    def has_fused_ops(self) -> bool:
        """Whether RMSNormalization and RotaryEmbedding exist."""
        return self.opset >= FUSED_NORM_OPSET

    @property
    def has_attention(self) -> bool:
        """Whether `Attention` exists and the runtime has a kernel for it.

        ONNX Runtime 1.32 has CPU kernels for opsets 23 and 24 only; at 25 it expands the operator
        into its ONNX definition, which decodes a token four times slower than the primitives
        written here (16 heads of 128, 4096 keys).
        """
        newest = 24 if self.runtime is Runtime.ORT else NEWEST_OPSET
        return FUSED_NORM_OPSET <= self.opset <= newest
