"""The float64 oracle of an ONNX model: its graph, interpreted exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import torch

from qkexport.compare.tolerance import NOISE_DRAWS
from qkexport.interpret import Interpreter
from qkexport.oracle.noise import RoundingNoise
from qkexport.run.inputs import checked_inputs
from qkexport.run.onnx_types import TORCH_DTYPES
from qkexport.run.runner import TensorInfo, Tensors

if TYPE_CHECKING:
    import onnx_ir as ir

# Nodes whose result is an input's elements, moved: rounding them again rounds nothing.
_MOVERS: Final = frozenset(
    {
        "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad",
        "Reshape", "ScatterElements", "ScatterND", "Slice", "Split", "Squeeze", "TensorScatter",
        "Tile", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip


class OnnxOracle:
    """Evaluates an ONNX model in float64; see `Interpreter`.

    Args:
        model: The model; not changed, its weights not copied.
    """

    def __init__(self, model: ir.Model) -> None:
        self._interpreter = Interpreter(model, exact=True)
        self.inputs = model_inputs(model)
        self.outputs = tuple(map(tensor_info, model.graph.outputs))

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Exact outputs by name: float64, or the model's integers.

        Raises:
            UsageError: An input is missing, unknown or of the wrong type.
            UnsupportedModelError: A node cannot be evaluated.
        """
        return self._interpreter.run(checked_inputs("the float64 oracle", self.inputs, inputs))

    def noisy(
        self,
        inputs: Tensors,
        *,
        draws: int = NOISE_DRAWS,
        narrow_to: torch.dtype | None = None,
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Outputs under rounding noise, one evaluation a draw; see `RoundingNoise`."""
        checked = checked_inputs("the float64 oracle", self.inputs, inputs)
        for seed in range(draws):
            noise = RoundingNoise(seed, narrow_to)
            exact = {
                name: noise.perturbed(x.double(), x.dtype) if x.is_floating_point() else x
                for name, x in checked.items()
            }
            yield self._interpreter.run(exact, noise_tap(noise))


def noise_tap(noise: RoundingNoise) -> Callable[[ir.Value, torch.Tensor], torch.Tensor]:
    """Adds noise to every value that a node computes; a tap for `Interpreter.run`."""

    def tap(value: ir.Value, x: torch.Tensor) -> torch.Tensor:
        node = value.producer()
        if not x.is_floating_point() or node is None or node.op_type in _MOVERS:
            return x
        return noise.perturbed(x, _stored(value))

    return tap


def _stored(value: ir.Value) -> torch.dtype:
    """The type the model keeps a value in; float32 where the graph does not say."""
    return torch.float32 if value.dtype is None else TORCH_DTYPES[int(value.dtype)]


def tensor_info(value: ir.Value) -> TensorInfo:
    """An input or output of a graph, as runners describe theirs."""
    sizes = value.shape if value.shape is not None else ()
    shape = tuple(size if isinstance(size, int) else str(size.value or "?") for size in sizes)
    return TensorInfo(str(value.name), _stored(value), shape)


def model_inputs(model: ir.Model) -> tuple[TensorInfo, ...]:
    """What a caller must give: weights that are also listed as inputs are left out."""
    weights = model.graph.initializers
    return tuple(tensor_info(value) for value in model.graph.inputs if value.name not in weights)
