"""Some nodes of a graph as boxes and lines, without places yet."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Sequence
from typing import Final

import onnx_ir as ir

_LONGEST_LABEL: Final = 22
_SCALAR_OPERATORS: Final = frozenset(
    {"Add", "Clip", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mul", "Pow", "Sub", "Where"}
)


class BoxKind(enum.StrEnum):
    """What a box stands for."""

    OPERATOR = "operator"
    FUSED = "fused"
    INPUT = "input"
    WEIGHT = "weight"
    OUTPUT = "output"


@dataclasses.dataclass(frozen=True)
class Box:
    """One box: its first line, and the smaller ones below."""

    kind: BoxKind
    label: str
    details: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Diagram:
    """Boxes, and lines between them as pairs of indices, from above to below.

    Attributes:
        title: What is shown.
        boxes: In the order of the graph.
        lines: Source and target, each pair once.
        num_nodes: Nodes that are shown.
        num_shape_nodes: Nodes left out because they compute sizes, not values.
    """

    title: str
    boxes: tuple[Box, ...]
    lines: tuple[tuple[int, int], ...]
    num_nodes: int
    num_shape_nodes: int


def diagram_of(
    title: str,
    nodes: Sequence[ir.Node],
    *,
    fused: Collection[ir.Node] = (),
    fellows: Collection[ir.Node] = (),
) -> Diagram:
    """Shows nodes with what they take and what they give.

    Args:
        title: What is shown.
        nodes: In the order of their graph or function.
        fused: Those that are drawn as the fused operator.
        fellows: Nodes that are not shown, and whose use of a value is not shown either.
    """
    shown = [node for node in nodes if not computes_sizes(node)]
    writer = _Writer(set(nodes) - set(shown))
    for node in shown:
        writer.add(node, fused=node in fused)
    writer.add_outputs(shown, fellows)
    boxes, lines = tuple(writer.boxes), tuple(dict.fromkeys(writer.lines))
    return Diagram(title, boxes, lines, len(shown), len(nodes) - len(shown))


class _Writer:
    def __init__(self, left_out: Collection[ir.Node]) -> None:
        self.boxes: list[Box] = []
        self.lines: list[tuple[int, int]] = []
        self._left_out = left_out
        self._makers: dict[ir.Value, int] = {}

    def add(self, node: ir.Node, *, fused: bool) -> None:
        sources = [self._source(value) for value in node.inputs if value is not None]
        details = fused_details(node) if fused else tuple(_scalars(node))
        kind = BoxKind.FUSED if fused else BoxKind.OPERATOR
        index = self._box(Box(kind, node.op_type, details))
        self.lines += [(source, index) for source in sources if source is not None]
        self._makers |= dict.fromkeys(node.outputs, index)

    def add_outputs(self, nodes: Sequence[ir.Node], fellows: Collection[ir.Node]) -> None:
        """A box for each value that nodes outside read, or that the graph returns."""
        inside = {*nodes, *fellows, *self._left_out}
        for node in nodes:
            for value in node.outputs:
                users = {use.node for use in value.uses()}
                if value.is_graph_output() or users - inside:
                    index = self._box(Box(BoxKind.OUTPUT, shorten(value.name), _shape(value)))
                    self.lines.append((self._makers[value], index))

    def _source(self, value: ir.Value) -> int | None:
        if value not in self._makers:
            if value.producer() in self._left_out or _is_size(value):
                return None
            is_weight = value.const_value is not None
            kind = BoxKind.WEIGHT if is_weight else BoxKind.INPUT
            self._makers[value] = self._box(Box(kind, shorten(value.name), _shape(value)))
        return self._makers[value]

    def _box(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1


def shorten(name: str | None) -> str:
    """The end of a long name, which tells more than its start."""
    text = name or "?"
    return text if len(text) <= _LONGEST_LABEL else f"…{text[1 - _LONGEST_LABEL :]}"


def fused_details(node: ir.Node) -> tuple[str, ...]:
    """The attributes of a fused node that say what it computes."""
    named = {name: attribute.value for name, attribute in node.attributes.items()}
    lines = [
        f"{named['num_heads']} query heads, {named['num_kv_heads']} key heads",
        f"{named['qk_norm']} norm over {named['norm_axis']}",
        f"epsilon {named['qk_norm_epsilon']:.3g}, scale {named['scale']:.4g}",
    ]
    for name in ("rotary", "causal"):
        if named[name] != "none":
            lines.append(f"{name} {named[name]}")
    if named["softcap"]:
        lines.append(f"softcap {named['softcap']:.4g}")
    windows = named["window_left"], named["window_right"]
    if windows != (-1, -1):
        lines.append(f"window {windows[0]}, {windows[1]}")
    return tuple(lines)


def _scalars(node: ir.Node) -> list[str]:
    """Constants of one element, which say more in the box than as boxes of their own."""
    if node.op_type not in _SCALAR_OPERATORS:
        return []
    return [text for value in node.inputs if value is not None and (text := _scalar(value))]


def _scalar(value: ir.Value) -> str:
    constant = value.const_value
    if constant is None or constant.size != 1:
        return ""
    return f"{constant.numpy().item():.4g}"


def _is_size(value: ir.Value) -> bool:
    """A constant of one element, or of whole numbers: a size, an axis, a permutation."""
    constant = value.const_value
    if constant is None:
        return value.dtype is ir.DataType.INT64 and value.shape is not None and len(value.shape) < 2
    return constant.size == 1 or constant.dtype is ir.DataType.INT64


def computes_sizes(node: ir.Node) -> bool:
    """Whether a node's results are sizes alone, as those that make the shape of a Reshape."""
    return node.op_type in ("Constant", "Shape", "Size") or all(
        value.dtype is ir.DataType.INT64 and value.shape is not None and len(value.shape) < 2
        for value in node.outputs
    )


def _shape(value: ir.Value) -> tuple[str, ...]:
    if value.shape is None:
        return ()
    return (f"[{','.join(str(dim) for dim in value.shape)}]",)
