"""A PyTorch model with a name for everything that goes in and comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.run.runner import TensorInfo, Tensors
from qkexport.separate_inputs import separate_inputs
from qkexport.tensor_names import TensorNames

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from qkexport.load import TorchSource


@dataclasses.dataclass(frozen=True)
class Program:
    """An eager module and the graph exported from it.

    Attributes:
        module: Callable as the author calls it.
        exported: The same as a graph, weights shared.
        inputs: Tensor inputs in order, named as the source or else as the graph names them.
        outputs: Tensor outputs likewise.
        names: Name of each input and output by the graph's own.
    """

    module: nn.Module
    exported: ExportedProgram
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    names: Mapping[str, str]

    @property
    def eager(self) -> bool:
        """True when the module is the author's own and can be cast to another type."""
        return not isinstance(self.module, torch.fx.GraphModule)

    def call_arguments(self, inputs: Tensors) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Named tensors as the positional and keyword arguments of the module."""
        specs = self.exported.graph_signature.input_specs
        leaves = [
            inputs[self.names[spec.arg.name]]
            if isinstance(spec.arg, TensorArgument)
            else spec.arg.value
            for spec in specs
            if spec.kind is InputKind.USER_INPUT
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.exported.call_spec.in_spec)
        return tuple(args), kwargs


def load_program(source: TorchSource) -> Program:
    """Exports a source unless it is an exported program already.

    Raises:
        UsageError: The source has no example inputs.
        UnsupportedModelError: torch.export cannot trace it.
    """
    exported = source.program
    if exported is None:
        exported = _export(source)
    nodes = {node.name: node for node in exported.graph.nodes}
    signature = exported.graph_signature
    inputs = [
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    outputs = [
        spec.arg.name
        for spec in signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]
    given = _given_names(source, inputs, outputs)
    return Program(
        source.module,
        exported,
        _infos(nodes, inputs, given.inputs),
        _infos(nodes, outputs, given.outputs),
        dict(zip((*inputs, *outputs), (*given.inputs, *given.outputs), strict=True)),
    )


def _export(source: TorchSource) -> ExportedProgram:
    if not source.args and not source.kwargs:
        message = f"Model {source.name} needs example inputs to be traced, got none."
        raise UsageError(message, hint="give --inputs FILE, or a factory that returns them.")
    try:
        return torch.export.export(
            source.module,
            *separate_inputs(source.args, source.kwargs),
            dynamic_shapes=source.dynamic_shapes,
            strict=False,
        )
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"Model {source.name} must be traceable by torch.export, got {text}."
        raise UnsupportedModelError(message) from error


def _given_names(source: TorchSource, inputs: list[str], outputs: list[str]) -> TensorNames:
    given = source.names or TensorNames()
    return TensorNames(given.inputs or tuple(inputs), given.outputs or tuple(outputs))


def _infos(
    nodes: Mapping[str, torch.fx.Node], own: Sequence[str], names: Sequence[str]
) -> tuple[TensorInfo, ...]:
    return tuple(_info(name, nodes[node]) for node, name in zip(own, names, strict=True))


def _info(name: str, node: torch.fx.Node) -> TensorInfo:
    value = node.meta["val"]
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return TensorInfo(name, value.dtype, shape)
