"""Values known before run time, small ones folded from the operators that make them."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

Array: TypeAlias = npt.NDArray[np.generic]

# Larger tensors are weights of projections, which no rule looks into.
_MAX_ELEMENTS: Final = 1 << 22
_MAX_FOLDED: Final = 1 << 16
_BOUNDS: Final = ("start", "end")

# Pure operators that exporters leave between constants when they do not fold.
_FOLDABLE: Final = frozenset(
    {
        "Abs", "Add", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Exp", "Expand",
        "Flatten", "Floor", "Gather", "Greater", "Identity", "Less", "Log",
        "Mod", "Max", "Min", "Mul",
        "Neg", "Not", "Pow", "Range", "Reciprocal", "Reshape", "Slice", "Sqrt", "Squeeze", "Sub",
        "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
    }
)  # fmt: skip


_ELEMENTWISE: Final = frozenset(
    {"Add", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mod", "Mul", "Pow", "Sub", "Where"}
)


class Constants:
    """Answers which values of one graph are constants.

    Args:
        opset: Version of the standard operators, for folding.
    """

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._known: dict[ir.Value, Array | None] = {}

    def array(self, value: ir.Value | None) -> Array | None:
        """The value as an array; None where it is computed at run time or too large to look at."""
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = None  # cuts cycles
            self._known[value] = self._find(value)
        return self._known[value]

    def scalar(self, value: ir.Value | None) -> float | None:
        """The only element of a constant, whatever its rank."""
        array = self.array(value)
        if array is None or array.size != 1 or array.dtype.kind not in "fiuV":
            return None
        return float(array.astype(np.float64).reshape(()))

    def integers(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """All elements of an integer constant, row-major."""
        array = self.array(value)
        if array is None or array.dtype.kind not in "iu":
            return None
        return tuple(int(item) for item in array.reshape(-1))

    def _find(self, value: ir.Value) -> Array | None:
        if value.is_graph_input():
            return None  # an initializer that callers may replace is not a constant
        if value.const_value is not None:
            return _small(value.const_value, _MAX_ELEMENTS)
        node = value.producer()
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Constant":
            return _constant_node(node)
        if node.op_type == "Shape":
            return _static_shape(node)
        if node.op_type not in _FOLDABLE or len(node.outputs) != 1:
            return None
        return self._fold(node)

    def _fold(self, node: ir.Node) -> Array | None:
        arrays = [None if value is None else self.array(value) for value in node.inputs]
        for value, array in zip(node.inputs, arrays, strict=True):
            if value is not None and (array is None or array.size > _MAX_FOLDED):
                return None
        if _elements(node.op_type, [array for array in arrays if array is not None]) > _MAX_FOLDED:
            return None
        folded = _evaluate(node, arrays, self._opset)
        return None if folded is None or folded.size > _MAX_FOLDED else folded


def _elements(op_type: str, arrays: list[Array]) -> float:
    """Elements of a result, or an upper bound, before anything is computed."""
    shapes = [array.shape for array in arrays]
    try:
        if op_type == "ConstantOfShape":
            return math.prod(map(int, arrays[0].reshape(-1)))
        if op_type == "Range":
            start, limit, step = (float(array.reshape(())) for array in arrays)
            return abs((limit - start) / step)
        if op_type == "Expand":
            target = tuple(map(int, arrays[1].reshape(-1)))
            return math.prod(np.broadcast_shapes(shapes[0], target))
        if op_type == "Tile":
            return arrays[0].size * math.prod(map(int, arrays[1].reshape(-1)))
        if op_type == "Gather":
            return arrays[0].size * arrays[1].size / min(shapes[0], default=1)
        if op_type in _ELEMENTWISE:
            return math.prod(np.broadcast_shapes(*shapes))
    except (ArithmeticError, ValueError, IndexError):
        return math.inf  # not what the operator takes
    return sum(array.size for array in arrays)


def _small(tensor: ir.TensorProtocol, limit: int) -> Array | None:
    return tensor.numpy() if math.prod(tensor.shape.numpy()) <= limit else None


def _constant_node(node: ir.Node) -> Array | None:
    for name, attribute in node.attributes.items():
        if name == "value":
            return _small(attribute.as_tensor(), _MAX_ELEMENTS)
        if name in ("value_float", "value_floats"):
            return np.asarray(attribute.value, np.float32)
        if name in ("value_int", "value_ints"):
            return np.asarray(attribute.value, np.int64)
    return None


def _static_shape(node: ir.Node) -> Array | None:
    """The sizes that a Shape node selects, where these are known."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None:
        return None
    bounds = [node.attributes[n].as_int() if n in node.attributes else None for n in _BOUNDS]
    dims = shape.dims[slice(*bounds)]
    known = [dim for dim in dims if isinstance(dim, int)]
    return np.asarray(known, np.int64) if len(known) == len(dims) else None


def _evaluate(node: ir.Node, arrays: list[Array | None], opset: int) -> Array | None:
    names = ["" if array is None else f"i{i}" for i, array in enumerate(arrays)]
    proto = ir.to_proto(node)
    del proto.input[:], proto.output[:]
    proto.input.extend(names)
    proto.output.append("o")
    feeds = {
        name: array for name, array in zip(names, arrays, strict=True) if name and array is not None
    }
    graph = onnx.helper.make_graph(
        [proto],
        "fold",
        [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for n, a in feeds.items()
        ],
        [onnx.ValueInfoProto(name="o")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])  # type: ignore[index]
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None  # what cannot be folded is simply not a constant
