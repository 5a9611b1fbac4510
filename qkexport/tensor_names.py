"""What a model's tensors are called outside of PyTorch."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """Names of all inputs and outputs, in order; torch.export would make up its own."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
