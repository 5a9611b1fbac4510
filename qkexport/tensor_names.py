"""What a model's tensors are called outside of PyTorch."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """Names in order; where there are none, those that torch.export makes up.

    Attributes:
        inputs: Of all inputs, or none.
        outputs: Of all outputs, or none.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
