"""Evaluates an ONNX model in PyTorch, rounding as PyTorch does: the baseline of an .onnx file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from qkexport.errors import UnsupportedModelError
from qkexport.interpret import Interpreter
from qkexport.oracle.graph import model_inputs, tensor_info
from qkexport.run.inputs import checked_inputs
from qkexport.run.runner import ClosedOnLeaving, Tensors
from qkexport.run.torch_runner import TORCH

if TYPE_CHECKING:
    import onnx_ir as ir


def open_onnx(path: Path) -> OnnxTorchRunner:
    """A file, interpreted by PyTorch: what its graph means, whatever a runtime makes of it.

    Raises:
        UnsupportedModelError: The file is no ONNX model.
    """
    import onnx_ir as ir

    try:
        model = ir.load(path)
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        message = f"Model {path.name} must load on {TORCH}, got {text}."
        raise UnsupportedModelError(message) from error
    return OnnxTorchRunner(model)


class OnnxTorchRunner(ClosedOnLeaving):
    """An ONNX graph interpreted by PyTorch in the types it names; see `Runner`.

    Args:
        model: The model; not changed, its weights not copied.
    """

    def __init__(self, model: ir.Model) -> None:
        self.backend = TORCH
        self.notes: tuple[str, ...] = ("ONNX graph interpreted by PyTorch",)
        self._interpreter = Interpreter(model, exact=False)
        self.inputs = model_inputs(model)
        self.outputs = tuple(map(tensor_info, model.graph.outputs))

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Evaluates the model; see `Runner.run`."""
        return self._interpreter.run(checked_inputs(self.backend, self.inputs, inputs))

    def close(self) -> None:
        """Frees nothing: the model is the caller's."""
