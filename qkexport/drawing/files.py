"""Drawings as .svg or .html files that need nothing else."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.drawing.diagram import BoxKind, Diagram
from qkexport.drawing.layout import Layout, lay_out
from qkexport.errors import UsageError
from qkexport.files import write_whole
from qkexport.templates import template_environment

if TYPE_CHECKING:
    from qkexport.drawing.attention import AttentionDrawing

_SUFFIXES: Final = (".svg", ".html")
_MARGIN: Final = 24.0
_TITLE: Final = 34.0
_BETWEEN: Final = 56.0


@dataclasses.dataclass(frozen=True)
class Panel:
    """A diagram at its place in the picture."""

    layout: Layout
    x: float
    y: float
    caption: str


def check_drawing_path(path: Path) -> None:
    """Refuses a file of another kind before any work is done.

    Raises:
        UsageError: The suffix is neither .svg nor .html.
    """
    if path.suffix not in _SUFFIXES:
        message = f"Drawing must be an .svg or .html file, got {path.name!r}."
        raise UsageError(message, hint=f"name it {path.stem}.svg.")


def write_drawing(drawings: Sequence[AttentionDrawing], path: Path, *, title: str) -> None:
    """Writes drawings to one file.

    Args:
        drawings: At least one.
        path: .svg or .html.
        title: Heading of the page, or name of the picture for those who cannot see it.
    """
    check_drawing_path(path)
    template = f"attention{path.suffix}.j2"
    text = _render(template, title=title, **_picture(drawings), drawings=drawings)
    write_whole(path, [text.encode()])


def _render(template: str, **values: object) -> str:
    environment = template_environment("qkexport.drawing")
    environment.filters["px"] = lambda value: f"{value:.1f}".removesuffix(".0")
    text: str = environment.get_template(template).render(**values)
    return text


def _picture(drawings: Sequence[AttentionDrawing]) -> dict[str, object]:
    """Panels in rows, one row a drawing, before left of after."""
    panels, y, width = [], _MARGIN, 0.0
    for drawing in drawings:
        diagrams = [item for item in (drawing.before, drawing.after) if item is not None]
        layouts = [lay_out(diagram) for diagram in diagrams]
        height = max(layout.height for layout in layouts)
        lefts = itertools.accumulate((x.width + _BETWEEN for x in layouts), initial=_MARGIN)
        for layout, x in zip(layouts, lefts, strict=False):
            middle = y + _TITLE + (height - layout.height) / 2
            panels.append(Panel(layout, x, middle, caption(layout.diagram)))
            width = max(width, x + layout.width + _MARGIN)
        y += _TITLE + height + _MARGIN
    return {"panels": panels, "width": width, "height": y}


def caption(diagram: Diagram) -> str:
    """The title with the number of nodes, and what those are that compute no attention."""
    fused = sum(box.kind is BoxKind.FUSED for box in diagram.boxes)
    counted = fused or diagram.num_nodes
    parts = [f"{counted} node{'s' if counted != 1 else ''}"]
    if diagram.num_nodes > counted:
        parts.append(f"{diagram.num_nodes - counted} that adapt inputs and outputs")
    if diagram.num_shape_nodes:
        parts.append(f"{diagram.num_shape_nodes} that compute sizes")
    return f"{diagram.title} ({', and '.join(parts)})"
