"""Values inside a graph: read from the interpreter, or from ONNX Runtime as extra outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
import torch

from qkexport.interpret import Interpreter
from qkexport.interpret.tensors import to_torch
from qkexport.run import open_runner

# Changes a value as it passes, as rounding noise does.
Change = Callable[[ir.Value, torch.Tensor], torch.Tensor]


def interpreted_values(
    model: ir.Model,
    inputs: Mapping[str, torch.Tensor],
    names: Collection[str],
    *,
    exact: bool,
    change: Change | None = None,
) -> dict[str, torch.Tensor]:
    """The named values of a graph, evaluated in PyTorch.

    Args:
        model: The graph.
        inputs: By the graph's names.
        names: Values that nodes make.
        exact: In float64 throughout.
        change: Applied to each value first.
    """
    found: dict[str, torch.Tensor] = {}

    def tap(value: ir.Value, x: torch.Tensor) -> torch.Tensor:
        x = x if change is None else change(value, x)
        if value.name in names:
            found[str(value.name)] = x
        return x

    Interpreter(model, exact=exact).run(inputs, tap)
    return found


def candidate_values(
    path: Path, backend: str, inputs: Mapping[str, torch.Tensor], names: Collection[str]
) -> dict[str, torch.Tensor]:
    """The named values of an .onnx file, as a backend computes them.

    The file is run from a temporary copy of its graph with more outputs; its weights stay where
    they are.

    Args:
        path: The file.
        backend: Who runs it.
        inputs: By the file's names.
        names: Values that nodes make.
    """
    model = onnx.load(path, load_external_data=False)
    known = {output.name for output in model.graph.output}
    types = {value.name: value for value in model.graph.value_info}
    for name in names:
        if name not in known:
            model.graph.output.append(types.get(name, onnx.ValueInfoProto(name=name)))
    with tempfile.TemporaryDirectory(prefix="qkexport-layers-") as folder:
        for location in _external_files(model):
            target = Path(folder) / location
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to((path.parent / location).resolve())
        copy = Path(folder) / "tapped.onnx"
        onnx.save(model, copy)
        runner = open_runner(copy, backend)
        try:
            results = runner.run(inputs)
        finally:
            runner.close()
    return {name: results[name] for name in names}


def _external_files(model: onnx.ModelProto) -> set[str]:
    return {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }


def weight_or_input(value: ir.Value, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The value of a weight or graph input; None for what a node makes."""
    if value.const_value is not None:
        return to_torch(value.const_value)
    return inputs.get(value.name or "") if value.is_graph_input() else None
