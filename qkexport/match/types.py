"""Element types and shapes of what recipes make, as far as they are known before run time."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.facts import Facts
from qkexport.match.proof import NotProvenError
from qkexport.signature import Dim, DType, TensorType

_DTYPES: Final = {
    ir.DataType.FLOAT: DType.FLOAT32,
    ir.DataType.FLOAT16: DType.FLOAT16,
    ir.DataType.BFLOAT16: DType.BFLOAT16,
    ir.DataType.BOOL: DType.BOOL,
    ir.DataType.INT64: DType.INT64,
}


def tensor_type(facts: Facts, recipe: r.Recipe) -> TensorType:
    """Type of an input of the fused node.

    Raises:
        NotProvenError: It has an element type or rank that the operator does not take.
    """
    if isinstance(recipe, r.Source):
        sizes = facts.sizes(recipe.value)
        if sizes is None:
            raise NotProvenError("the rank of an input is not known", recipe.value.producer())
        dtype = _dtype(facts.dtype(recipe.value), recipe.value.producer())
        return TensorType(dtype, tuple(size.known for size in sizes))
    if isinstance(recipe, r.Constant):
        dtype = _dtype(ir.DataType.from_numpy(recipe.array.dtype), None)
        return TensorType(dtype, recipe.array.shape)
    if isinstance(recipe, r.Produced):
        raise TypeError("an input cannot be made from the node's own output")
    return _applied(facts, recipe)


def _dtype(dtype: ir.DataType | None, node: ir.Node | None) -> DType:
    if dtype not in _DTYPES:
        raise NotProvenError(f"an input has the element type {dtype}", node)
    return _DTYPES[dtype]


def _applied(facts: Facts, recipe: r.Apply) -> TensorType:
    attributes = dict(recipe.attributes)
    if recipe.op_type == "Shape":
        return TensorType(DType.INT64, (1,))
    inputs = [tensor_type(facts, item) for item in recipe.inputs if not _is_list(item)]
    first = inputs[0]
    if recipe.op_type == "Cast":
        return TensorType(_dtype(ir.DataType(attributes["to"]), None), first.shape)
    if recipe.op_type == "Where":
        return TensorType(inputs[1].dtype, _broadcast([item.shape for item in inputs]))
    if recipe.op_type in ("Add", "Mul", "And"):
        return TensorType(first.dtype, _broadcast([item.shape for item in inputs]))
    if recipe.op_type == "Concat":
        axis = attributes["axis"]
        return TensorType(first.dtype, _concatenated([i.shape for i in inputs], axis))
    return TensorType(first.dtype, _moved(recipe, first.shape))


def _is_list(recipe: r.Recipe) -> bool:
    return isinstance(recipe, r.Constant) and recipe.array.dtype == np.int64 and recipe.array.ndim == 1


def _moved(recipe: r.Apply, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    numbers = [int(i) for item in recipe.inputs[1:] if isinstance(item, r.Constant)
               for i in item.array]
    if recipe.op_type == "Transpose":
        perm = dict(recipe.attributes)["perm"]
        return tuple(shape[i] for i in perm)
    if recipe.op_type == "Squeeze":
        return tuple(dim for i, dim in enumerate(shape) if i not in numbers)
    if recipe.op_type == "Unsqueeze":
        rest = iter(shape)
        rank = len(shape) + len(numbers)
        return tuple(1 if i in numbers else next(rest) for i in range(rank))
    if recipe.op_type == "Reshape":
        return tuple(shape[i] if dim == 0 else None if dim < 0 else dim
                     for i, dim in enumerate(numbers))
    if recipe.op_type == "Expand":
        return tuple(numbers)
    return shape  # Neg, Not


def _broadcast(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_larger(dims) for dims in zip(*padded, strict=True))


def _larger(dims: tuple[Dim, ...]) -> Dim:
    known = [dim for dim in dims if dim is not None and dim != 1]
    return known[0] if known else None if None in dims else 1


def _concatenated(shapes: list[tuple[Dim, ...]], axis: int) -> tuple[Dim, ...]:
    parts = [shape[axis] for shape in shapes]
    known = [part for part in parts if part is not None]
    total = sum(known) if len(known) == len(parts) else None
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
