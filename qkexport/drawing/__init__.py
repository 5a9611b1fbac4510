"""Draws the attentions of a model: the operators they were, and the one they are when fused."""

from __future__ import annotations

from pathlib import Path

from qkexport.drawing.attention import AttentionDrawing, draw_attentions
from qkexport.drawing.files import check_drawing_path, write_drawing
from qkexport.errors import UnsupportedModelError

__all__ = ["AttentionDrawing", "draw_attentions", "draw_file", "write_drawing"]


def draw_file(path: Path, picture: Path) -> tuple[AttentionDrawing, ...]:
    """Draws the attentions of an .onnx file.

    Args:
        path: The model; it is not changed.
        picture: .svg or .html, replaced if it exists.

    Raises:
        LoadError: The model cannot be read.
        UnsupportedModelError: It has no attention with a norm that is fused or could be.
        UsageError: The picture is of another kind.
    """
    from qkexport.infer_types import complete_types
    from qkexport.load import OnnxSource, load_source

    check_drawing_path(picture)
    source = load_source(path)
    model = source.model if isinstance(source, OnnxSource) else None
    if model is None:
        message = f"Only .onnx files have a graph to draw, got {path}."
        raise UnsupportedModelError(message, hint="convert it first: qkexport convert SOURCE")
    complete_types(model)
    drawings = draw_attentions(model)
    if not drawings:
        message = (
            f"Model {path} must have an attention that is fused or could be, got none to draw."
        )
        raise UnsupportedModelError(message, hint=f"qkexport inspect {path} lists the reasons.")
    write_drawing(drawings, picture, title=f"Attention of {path.name}, before and after")
    return drawings
