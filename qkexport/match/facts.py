"""What every rule may ask about a graph, and the view of a value that rules pass on."""

from __future__ import annotations

import dataclasses
from typing import Final

import onnx_ir as ir

from qkexport.match.constants import Constants
from qkexport.match.elements import Elements
from qkexport.match.layout import Layout, axis_size
from qkexport.match.shapes import Shapes, Sizes
from qkexport.match.sizes import ONE

STANDARD_DOMAINS: Final = ("", "ai.onnx")
FLOATS: Final = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclasses.dataclass(frozen=True)
class View:
    """A value together with what its axes mean."""

    value: ir.Value
    layout: Layout

    @property
    def rank(self) -> int:
        return len(self.layout)


class Facts:
    """Constants, shapes and order of one graph. Read-only.

    Args:
        graph: The graph to look at.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.opset = graph.opset_imports.get("", 1)
        self.constants = Constants(self.opset)
        self.shapes = Shapes(graph, self.constants)
        self.elements = Elements(graph, self.shapes)
        self.order = {node: i for i, node in enumerate(graph)}

    def sizes(self, value: ir.Value) -> Sizes | None:
        return self.shapes.sizes(value)

    def same_sizes(self, left: ir.Value, right: ir.Value) -> bool:
        """Whether two values provably have one shape."""
        sizes = self.sizes(left)
        return sizes is not None and sizes == self.sizes(right)

    def may_keep_sizes(self, source: ir.Value, result: ir.Value) -> bool:
        """Whether an elementwise result has the shape of one operand, up to names.

        Masks come with names of their own for the same dimensions. Where an operand's size is not
        known it is taken to be the result's: were it one and broadcast, the fused node would find
        key, value and mask of different lengths and refuse to run.
        """
        before, after = self.sizes(source), self.sizes(result)
        if before is None or after is None or len(before) != len(after):
            return False
        return not any(a == ONE != b for a, b in zip(before, after, strict=True))

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        """Element type, followed back through operators that keep it where it is not written."""
        while value.dtype is None:
            if value.const_value is not None:
                return value.const_value.dtype
            node = value.producer()
            if node is None or not node.inputs or node.inputs[0] is None:
                return None
            if node.op_type == "Cast":
                return ir.DataType(node.attributes["to"].as_int())
            if node.op_type not in _KEEPS_DTYPE:
                return None
            value = node.inputs[0]
        return value.dtype

    def fits(self, view: View) -> bool:
        """Whether a layout has the rank of its value and whole axes where both are known."""
        sizes = self.sizes(view.value)
        if sizes is None or len(sizes) != view.rank:
            return False
        return all(
            size == ONE or axis_size(factors) != ONE
            for size, factors in zip(sizes, view.layout, strict=True)
        )


_KEEPS_DTYPE: Final = frozenset(
    {
        "Add", "Clip", "Concat", "Cos", "Div", "Dropout", "Exp", "Expand", "Flatten", "Gather",
        "Identity", "LayerNormalization", "Log", "MatMul", "Mul", "Neg", "Pow", "Reciprocal",
        "ReduceMean", "Reshape", "Sigmoid", "Sin", "Slice", "Softmax", "Softplus", "Split", "Sqrt",
        "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """Whether a node is one of these standard operators."""
    return node is not None and node.domain in STANDARD_DOMAINS and node.op_type in op_types


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that computes a value, where it is one of these standard operators."""
    node = None if value is None else value.producer()
    return node if is_op(node, *op_types) else None


def integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def number(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def data_input(node: ir.Node, index: int) -> ir.Value | None:
    """Input by position, None where it is absent or left off."""
    return node.inputs[index] if index < len(node.inputs) else None
