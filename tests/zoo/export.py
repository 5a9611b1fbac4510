"""Exporting zoo models, and checking that what was fused computes what PyTorch computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from fused_model import FusedModel, run
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from qkexport.real_arithmetic import in_real_arithmetic
from qkexport.trace import exporter_noise_logged
from zoo.family import Sample


def export_program(sample: Sample) -> torch.export.ExportedProgram:
    with exporter_noise_logged(), torch.no_grad():
        return torch.export.export(
            sample.module, sample.args, dict(sample.kwargs), dynamic_shapes=sample.dynamic_shapes
        )


def serves_once(program: torch.export.ExportedProgram) -> bool:
    """Whether sizes depend on data: torch.onnx cannot take such a program a second time."""
    values = [node.meta["val"] for node in program.graph.nodes if "val" in node.meta]
    return any(free_unbacked_symbols(value) for value in values)


def export_model(program: torch.export.ExportedProgram, opset: int) -> ir.Model:
    with exporter_noise_logged(), torch.no_grad():
        program = in_real_arithmetic(program)
        exported = torch.onnx.export(program, (), dynamo=True, opset_version=opset, verbose=False)
    assert exported is not None
    return ir.from_proto(exported.model_proto)


def tensors(sample: Sample) -> list[torch.Tensor]:
    """The sample's tensors in the order of the exported inputs."""
    leaves = torch.utils._pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def resized(sample: Sample, change: Mapping[str, int]) -> Sample:
    """The sample with dynamic dimensions of other sizes: rows are repeated or dropped.

    Args:
        sample: As exported.
        change: What to add to a dimension, by a word in its name.
    """
    if sample.dynamic_shapes is None:
        return sample
    shapes = sample.dynamic_shapes
    args, kwargs = shapes, shapes
    if isinstance(shapes, dict) and "args" in shapes:
        args = shapes["args"]
    new_args = tuple(
        _resized(value, axes, change) for value, axes in zip(sample.args, args, strict=False)
    )
    new_kwargs = {
        name: _resized(value, kwargs[name], change) for name, value in sample.kwargs.items()
    }
    return Sample(sample.module, new_args, new_kwargs, shapes)


def _resized(value: Any, axes: Any, change: Mapping[str, int]) -> Any:
    if not isinstance(value, torch.Tensor) or not axes:
        return value
    for axis, dim in axes.items():
        size = value.shape[axis]
        new = size + next((n for word, n in change.items() if word in dim.__name__), 0)
        value = value.index_select(axis, torch.arange(new) % size)
    return value


def worst_error(fused: FusedModel, sample: Sample) -> float:
    """Largest difference between fused model and PyTorch, relative to the largest value."""
    names = [value.name for value in fused.model.graph.inputs]
    found = tensors(sample)
    if len(names) != len(found):
        found = [tensor for name, tensor in sample.kwargs.items() if name in names]
    feeds = {name: t.detach().numpy() for name, t in zip(names, found, strict=True)}
    with exporter_noise_logged(), torch.no_grad():
        result = sample.module(*sample.args, **sample.kwargs)
    expected = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    actual = run(fused.model, feeds)
    assert len(actual) == len(expected)
    worst = 0.0
    for ours, theirs in zip(actual, expected, strict=True):
        reference = theirs.double().numpy()
        assert ours.shape == reference.shape
        assert np.isfinite(ours).all()
        scale = max(1.0, float(np.abs(reference).max(initial=0.0)))
        error = float(np.abs(ours.astype(np.float64) - reference).max(initial=0.0)) / scale
        worst = math.inf if math.isnan(error) else max(worst, error)
    return worst
