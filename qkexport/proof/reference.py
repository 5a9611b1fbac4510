"""The model that candidates are held against: its inputs, its exact answers, PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from qkexport.domain import ModelDomain, onnx_domain
from qkexport.errors import UnsupportedModelError
from qkexport.index_bounds import index_bounds
from qkexport.kv_cache.onnx_trials import trials_of_domain
from qkexport.load import OnnxSource
from qkexport.oracle import OnnxOracle, ProgramOracle
from qkexport.oracle.randomness import random_node, random_operator
from qkexport.proof.program_domain import example_tensors, index_bounds_of_program, program_domain
from qkexport.proof.reduction_length import longest_sum_of_model, longest_sum_of_program
from qkexport.run.onnx_torch_runner import OnnxTorchRunner
from qkexport.run.program import Program, load_program
from qkexport.run.runner import TensorInfo, Tensors
from qkexport.run.torch_runner import TorchRunner
from qkexport.trial import Trial

if TYPE_CHECKING:
    from qkexport.load import Source, TorchSource


class Reference(Protocol):
    """A model whose answers are taken to be right.

    Attributes:
        name: How the user named it.
        domain: What it accepts.
        inputs: Its inputs in order.
        outputs: Its outputs in order.
        has_names: False when output names come from tracing and mean nothing to others.
        examples: Inputs whose values are known to be meaningful.
        index_bounds: Exclusive upper bound of the integers that each input may hold.
        reduction_length: Terms of the longest sum over weights.
        trials: Inputs to try instead of drawn ones, where drawn ones would not fit together.
    """

    name: str
    domain: ModelDomain
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    has_names: bool
    examples: Tensors
    index_bounds: dict[str, int]
    reduction_length: int
    trials: tuple[Trial, ...]

    def exact(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Outputs in float64."""
        ...

    def noisy(
        self, inputs: Tensors, narrow_to: torch.dtype | None
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Outputs in float64 under rounding noise, one evaluation a draw."""
        ...

    def baseline(
        self, inputs: Tensors, dtype: torch.dtype | None
    ) -> dict[str, torch.Tensor] | None:
        """What PyTorch computes in the model's own types, or in `dtype`; None if it cannot."""
        ...


def open_reference(source: Source) -> Reference:
    """Prepares a loaded model as reference.

    Raises:
        UsageError: A PyTorch module comes without example inputs.
        UnsupportedModelError: torch.export cannot trace it, or it draws random numbers.
    """
    if isinstance(source, OnnxSource):
        return OnnxReference(source)
    return TorchReference(source)


class TorchReference:
    """A PyTorch model; see `Reference`."""

    def __init__(self, source: TorchSource) -> None:
        self.name = source.name
        self.has_names = source.names is not None
        self.trials = source.trials
        self._program: Program = load_program(source)
        _check_repeatable(source.name, random_operator(self._program.exported))
        self._oracle = ProgramOracle(self._program)
        self._runners: dict[torch.dtype | None, TorchRunner] = {}
        self.domain = program_domain(self._program)
        self.inputs, self.outputs = self._program.inputs, self._program.outputs
        self.examples: Tensors = example_tensors(self._program, source.stand_ins)
        self.index_bounds = index_bounds_of_program(self._program)
        self.reduction_length = longest_sum_of_program(self._program)

    def exact(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        return self._oracle.run(inputs)

    def noisy(
        self, inputs: Tensors, narrow_to: torch.dtype | None
    ) -> Iterator[dict[str, torch.Tensor]]:
        return self._oracle.noisy(inputs, narrow_to=narrow_to)

    def baseline(
        self, inputs: Tensors, dtype: torch.dtype | None
    ) -> dict[str, torch.Tensor] | None:
        if dtype is not None and not self._program.eager:
            return None  # the types of an exported graph are written into it
        if dtype not in self._runners:
            self._runners[dtype] = TorchRunner(self._program, dtype)
        runner = self._runners[dtype]
        # models may write into their inputs
        own = {info.name: inputs[info.name].to(info.dtype, copy=True) for info in runner.inputs}
        return runner.run(own)


class OnnxReference:
    """An ONNX model, interpreted by PyTorch; see `Reference`."""

    has_names = True

    def __init__(self, source: OnnxSource) -> None:
        self.name = source.name
        self.path: Path = source.path
        _check_repeatable(source.name, random_node(source.model))
        self._oracle = OnnxOracle(source.model)
        self._runner = OnnxTorchRunner(source.model)
        self.domain = onnx_domain(source.model)
        self.inputs, self.outputs = self._oracle.inputs, self._oracle.outputs
        self.examples: Tensors = {}
        self.index_bounds = index_bounds(source.model)
        self.trials = trials_of_domain(self.domain, self.index_bounds)
        self.reduction_length = longest_sum_of_model(source.model)

    def exact(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        return self._oracle.run(inputs)

    def noisy(
        self, inputs: Tensors, narrow_to: torch.dtype | None
    ) -> Iterator[dict[str, torch.Tensor]]:
        return self._oracle.noisy(inputs, narrow_to=narrow_to)

    def baseline(
        self, inputs: Tensors, dtype: torch.dtype | None
    ) -> dict[str, torch.Tensor] | None:
        return self._runner.run(inputs) if dtype is None else None


def _check_repeatable(name: str, random: str) -> None:
    if random:
        message = f"Reference {name} must compute the same every time, got {random}."
        hint = "export it in eval mode, or give the random numbers as an input."
        raise UnsupportedModelError(message, hint=hint)
