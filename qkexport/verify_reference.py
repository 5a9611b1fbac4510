"""The source of a conversion as something to compare with: exact values and PyTorch's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qkexport.load import OnnxSource
from qkexport.oracle import OnnxOracle, ProgramOracle
from qkexport.run.onnx_torch_runner import OnnxTorchRunner
from qkexport.run.program import load_program
from qkexport.run.torch_runner import TorchRunner

if TYPE_CHECKING:
    import torch

    from qkexport.run.program import Program
    from qkexport.trace import Trace

Tensors = Mapping[str, "torch.Tensor"]


class Reference(Protocol):
    """What a conversion is compared with; inputs and outputs go by the names of the graph."""

    def baseline(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """What the source computes in its own types."""
        ...

    def oracle(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """The same in float64."""
        ...

    def noisy(self, inputs: Tensors) -> Iterator[dict[str, torch.Tensor]]:
        """The oracle under rounding noise, one evaluation a draw."""
        ...


def open_reference(trace: Trace) -> Reference:
    """The reference of a trace."""
    if isinstance(trace.source, OnnxSource):
        return OnnxReference(trace.source.path)
    program = load_program(trace.source)
    own = [info.name for info in program.inputs]
    graph = [item.name for item in trace.domain.inputs]
    results = [value.name or "" for value in trace.model.graph.outputs]
    names = _Names(
        dict(zip(graph, own, strict=True)),
        dict(zip([info.name for info in program.outputs], results, strict=True)),
    )
    return TorchReference(program, names)


@dataclasses.dataclass(frozen=True)
class _Names:
    """Names of the graph against those of the program."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class TorchReference:
    """A PyTorch program; see `Reference`."""

    def __init__(self, program: Program, names: _Names) -> None:
        self._names = names
        self._runner = TorchRunner(program)
        self._oracle = ProgramOracle(program)

    def baseline(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        # models may write into their inputs
        return self._renamed(self._runner.run(_copies(self._own(inputs))))

    def oracle(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        return self._renamed(self._oracle.run(self._own(inputs)))

    def noisy(self, inputs: Tensors) -> Iterator[dict[str, torch.Tensor]]:
        for draw in self._oracle.noisy(self._own(inputs)):
            yield self._renamed(draw)

    def _own(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        return {self._names.inputs[name]: tensor for name, tensor in inputs.items()}

    def _renamed(self, outputs: Tensors) -> dict[str, torch.Tensor]:
        return {self._names.outputs[name]: tensor for name, tensor in outputs.items()}


def _copies(inputs: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in inputs.items()}


class OnnxReference:
    """An ONNX graph, interpreted by PyTorch; see `Reference`.

    It is read again from its file: the model in memory has been rewritten since.
    """

    def __init__(self, path: Path) -> None:
        import onnx_ir as ir

        model = ir.load(path)
        self._runner = OnnxTorchRunner(model)
        self._oracle = OnnxOracle(model)

    def baseline(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        return self._runner.run(inputs)

    def oracle(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        return self._oracle.run(inputs)

    def noisy(self, inputs: Tensors) -> Iterator[dict[str, torch.Tensor]]:
        return self._oracle.noisy(inputs)
