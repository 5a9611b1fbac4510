"""Inputs that mean something: what random numbers in the right shapes would not be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Trial:
    """One set of inputs to check a model with.

    Attributes:
        label: Name in reports.
        inputs: By the model's input names.
    """

    label: str
    inputs: Mapping[str, Tensor]
