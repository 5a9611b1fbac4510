"""A recorder of ONNX nodes that knows the differences between opsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from qkexport.body.target import Target
from qkexport.signature import DType

Size = int | ir.Value  # a number known now, or an int64 tensor [1] known at run time
Attribute = int | float | str | Sequence[int] | ir.TensorProtocol | ir.Graph

_AXES_INPUT_OPSET = 18  # ReduceMean and its kin take axes as an input from here on

_DATA_TYPES = {
    DType.FLOAT32: ir.DataType.FLOAT,
    DType.FLOAT16: ir.DataType.FLOAT16,
    DType.BFLOAT16: ir.DataType.BFLOAT16,
    DType.BOOL: ir.DataType.BOOL,
    DType.INT64: ir.DataType.INT64,
}


def data_type(dtype: DType) -> ir.DataType:
    """The ONNX element type of an operand type."""
    return _DATA_TYPES[dtype]


class BodyTape:
    """Collects the nodes of one body; constants become nodes, as functions have no initializers.

    Attributes:
        target: Runtime and opset the nodes are meant for.
        nodes: What was recorded, in order.
    """

    def __init__(self, target: Target, counter: Iterator[int] | None = None) -> None:
        self.target = target
        self.nodes: list[ir.Node] = []
        self._counter = itertools.count() if counter is None else counter

    def branch(self) -> BodyTape:
        """An empty tape for a subgraph; its names do not clash with those of this tape."""
        return BodyTape(self.target, self._counter)

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Attribute) -> ir.Value:
        """Records a node of one output and returns that."""
        return self.op_all(op_type, inputs, attributes, 1)[0]

    def op_all(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute],
        num_outputs: int,
    ) -> Sequence[ir.Value]:
        """Records a node and returns all its outputs."""
        name = f"qk_{op_type}_{next(self._counter)}"
        values = [ir.Value(name=f"{name}_{i}" if i else name) for i in range(num_outputs)]
        attrs = ir.convenience.convert_attributes(attributes)
        self.nodes.append(ir.Node("", op_type, inputs, attrs, outputs=values, name=name))
        return values

    def constant(self, array: np.ndarray) -> ir.Value:
        return self.op("Constant", value=ir.tensor(array))

    def ints(self, *values: int) -> ir.Value:
        """An int64 constant [len(values)]."""
        return self.constant(np.array(values, dtype=np.int64))

    def float(self, value: float) -> ir.Value:
        """A float32 scalar."""
        return self.constant(np.array(value, dtype=np.float32))

    def ones(self, *shape: int) -> ir.Value:
        return self.constant(np.ones(shape, dtype=np.float32))

    def cast(self, value: ir.Value, source: DType, target: DType) -> ir.Value:
        return value if source is target else self.op("Cast", value, to=int(data_type(target)))

    def transpose(self, value: ir.Value, *perm: int) -> ir.Value:
        return self.op("Transpose", value, perm=perm)

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        return self.op("Unsqueeze", value, self.ints(*axes)) if axes else value

    def reduce(self, op_type: str, value: ir.Value, *axes: int) -> ir.Value:
        """Reduces over `axes`, kept as size 1."""
        if self.target.opset < _AXES_INPUT_OPSET and op_type != "ReduceSum":
            return self.op(op_type, value, axes=axes, keepdims=1)
        return self.op(op_type, value, self.ints(*axes), keepdims=1)

    def split(self, value: ir.Value, *sizes: int) -> Sequence[ir.Value]:
        """Splits the last axis."""
        return self.op_all("Split", (value, self.ints(*sizes)), {"axis": -1}, len(sizes))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The extent of one axis, as int64 [1]."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def as_value(self, size: Size) -> ir.Value:
        return self.ints(size) if isinstance(size, int) else size

    def shape(self, *sizes: Size) -> ir.Value:
        """A shape operand [len(sizes)]."""
        if all(isinstance(size, int) for size in sizes):
            return self.ints(*(size for size in sizes if isinstance(size, int)))
        return self.op("Concat", *map(self.as_value, sizes), axis=0)

    def reshape(self, value: ir.Value, *sizes: Size) -> ir.Value:
        """Reshapes; a size 0 keeps the extent that stands there, empty tensors included."""
        return self.op("Reshape", value, self.shape(*sizes))

    def add(self, left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        return self.op("Add", self.as_value(left), self.as_value(right))

    def subtract(self, left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            return left - right
        return self.op("Sub", self.as_value(left), self.as_value(right))

    def multiply(self, left: Size, right: Size) -> Size:
        if isinstance(left, int) and isinstance(right, int):
            return left * right
        return self.op("Mul", self.as_value(left), self.as_value(right))

    def steps(self, stop: Size) -> ir.Value:
        """0, 1, ... stop - 1 as int64 [stop]."""
        if isinstance(stop, int):
            return self.constant(np.arange(stop, dtype=np.int64))
        zero = self.constant(np.array(0, dtype=np.int64))
        one = self.constant(np.array(1, dtype=np.int64))
        return self.op("Range", zero, self.op("Squeeze", stop), one)
