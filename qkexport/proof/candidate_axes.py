"""Inputs of a candidate and the axes it leaves open, for a reference that must be traced so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qkexport.input_options import DynamicDim
from qkexport.onnx_outline import load_outline

if TYPE_CHECKING:
    import onnx


def open_axes(path: Path) -> tuple[DynamicDim, ...]:
    """The axes of an .onnx file's inputs that have a symbol; none for other files.

    The weights are not read.
    """
    return tuple(
        DynamicDim(value.name, axis, dim.dim_param)
        for value in _inputs(path)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param.isidentifier()
    )


def input_names(path: Path) -> tuple[str, ...]:
    """Names of an .onnx file's inputs; none for other files."""
    return tuple(value.name for value in _inputs(path))


def _inputs(path: Path) -> Sequence[onnx.ValueInfoProto]:
    if path.suffix != ".onnx":
        return ()
    try:
        return tuple(load_outline(path).graph.input)
    except Exception:
        return ()  # whoever opens it next says what is wrong with it
