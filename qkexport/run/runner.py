"""The one interface of everything that can evaluate a model."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import torch

Tensors = Mapping[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """Name, type and shape of an input or output; a dimension without a number has its symbol."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | str, ...]


class Runner(Protocol):
    """A loaded model that can be run. Use as a context manager: leaving it frees the memory.

    Attributes:
        backend: Name on the command line.
        inputs: What it takes, in the model's order.
        outputs: What it returns, in the model's order.
        notes: What a reader of its results should know, for example emulation of a type.
    """

    backend: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    notes: tuple[str, ...]

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Evaluates the model.

        Args:
            inputs: One tensor for each of `inputs`, on the CPU.

        Returns:
            One tensor for each of `outputs`, on the CPU.

        Raises:
            UsageError: An input is missing, unknown or of the wrong type.
        """
        ...

    def close(self) -> None:
        """Frees the model."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class ClosedOnLeaving(abc.ABC):
    """A context manager that closes itself when its block is left."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
