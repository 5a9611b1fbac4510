"""One node being evaluated: its attributes, and the types it may produce."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch

from qkexport.run.onnx_types import TORCH_DTYPES

if TYPE_CHECKING:
    import onnx_ir as ir

EXACT: Final = torch.float64


@dataclasses.dataclass(frozen=True)
class Call:
    """What an operator sees of its node.

    Attributes:
        node: The node; its attributes have no references left.
        opset: Version of the node's operator set.
        exact: Floating types the node asks for become float64.
    """

    node: ir.Node
    opset: int
    exact: bool

    def get(self, name: str, default: Any = None) -> Any:
        """Value of an attribute: number, text, list, tensor or graph; the default if absent."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None or attribute.value is None else attribute.value

    def dtype(self, number: int) -> torch.dtype:
        """The PyTorch type of an ONNX type number, float64 for any float when exact."""
        dtype = TORCH_DTYPES[int(number)]
        return EXACT if self.exact and dtype.is_floating_point else dtype

    @property
    def num_outputs(self) -> int:
        return len(self.node.outputs)


Operator = Callable[..., torch.Tensor | Sequence[torch.Tensor | None]]
OPERATORS: Final[dict[str, Operator]] = {}

_OperatorT = TypeVar("_OperatorT", bound=Operator)


def operator(*names: str) -> Callable[[_OperatorT], _OperatorT]:
    """Registers the evaluation of one or more operators of the default domain.

    The function takes a `Call` and the node's inputs, absent ones as None, and returns the output
    or a sequence of outputs.
    """

    def register(function: _OperatorT) -> _OperatorT:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def ints(x: torch.Tensor) -> list[int]:
    """An integer tensor as numbers."""
    return [int(value) for value in x.flatten().tolist()]


def float32_inside(x: torch.Tensor) -> torch.Tensor:
    """X in the type that statistics are computed in: float32, or float64 when exact."""
    return x if x.dtype == EXACT else x.float()
