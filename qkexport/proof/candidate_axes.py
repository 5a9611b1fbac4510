"""Axes that a candidate leaves open, for a reference that must be traced with them."""

from __future__ import annotations

from pathlib import Path

from qkexport.input_options import DynamicDim


def open_axes(path: Path) -> tuple[DynamicDim, ...]:
    """The axes of an .onnx file's inputs that have a symbol; none for other files.

    The weights are not read.
    """
    if path.suffix != ".onnx":
        return ()
    import onnx

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception:
        return ()  # whoever opens it next says what is wrong with it
    return tuple(
        DynamicDim(value.name, axis, dim.dim_param)
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param.isidentifier()
    )
