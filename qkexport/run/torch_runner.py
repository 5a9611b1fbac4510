"""Runs a PyTorch model as its author does: eagerly, in the type it has or in a narrower one."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

import torch
from torch.utils import _pytree as pytree

from qkexport.run.inputs import checked_inputs
from qkexport.run.runner import ClosedOnLeaving, TensorInfo, Tensors

if TYPE_CHECKING:
    from qkexport.run.program import Program

TORCH: Final = "torch"


class TorchRunner(ClosedOnLeaving):
    """Eager evaluation of a program's own module; see `Runner`.

    Args:
        program: The model with the names of its inputs and outputs.
        dtype: Floating type to run in; None keeps the model's own. Needs an eager module: an
            exported graph has its types written into it.
    """

    def __init__(self, program: Program, dtype: torch.dtype | None = None) -> None:
        self.backend = TORCH
        self.notes: tuple[str, ...] = ()
        self._program = program
        self._module = program.module
        self._dtype = dtype
        self.inputs = program.inputs
        self.outputs = program.outputs
        if dtype is not None:
            self._module = copy.deepcopy(program.module).to(dtype)
            self.inputs = tuple(_cast_info(info, dtype) for info in program.inputs)
            self.outputs = tuple(_cast_info(info, dtype) for info in program.outputs)

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Evaluates the model; see `Runner.run`."""
        checked = checked_inputs(self.backend, self.inputs, inputs)
        args, kwargs = self._program.call_arguments(checked)
        with torch.no_grad():
            result = self._module(*args, **kwargs)
        tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
        pairs = zip(self.outputs, tensors, strict=True)
        return {info.name: tensor.detach() for info, tensor in pairs}

    def close(self) -> None:
        """Frees the module, if it is this runner's own."""
        del self._module


def _cast_info(info: TensorInfo, dtype: torch.dtype) -> TensorInfo:
    return TensorInfo(info.name, dtype if info.dtype.is_floating_point else info.dtype, info.shape)
