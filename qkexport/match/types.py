"""Element types and shapes of what recipes make, as far as they are known before run time."""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.facts import Facts
from qkexport.match.proof import NotProvenError
from qkexport.match.shapes import Sizes
from qkexport.match.sizes import ONE, Size
from qkexport.signature import DType, TensorType

_DTYPES: Final = {
    ir.DataType.FLOAT: DType.FLOAT32,
    ir.DataType.FLOAT16: DType.FLOAT16,
    ir.DataType.BFLOAT16: DType.BFLOAT16,
    ir.DataType.BOOL: DType.BOOL,
    ir.DataType.INT64: DType.INT64,
}
_UNKNOWN: Final = Size(1, ("?@",))


@dataclasses.dataclass(frozen=True)
class RecipeType:
    """What a recipe makes.

    Attributes:
        dtype: Its element type.
        sizes: Size of each axis.
    """

    dtype: ir.DataType
    sizes: Sizes

    def as_input(self) -> TensorType:
        """As the operator's signature wants it.

        Raises:
            NotProvenError: The operator has no such element type.
        """
        if self.dtype not in _DTYPES:
            raise NotProvenError(f"an input has the element type {self.dtype.name}")
        return TensorType(_DTYPES[self.dtype], tuple(size.known for size in self.sizes))

    def shape(self) -> ir.Shape:
        """As the graph wants it: numbers, names that the graph knows, unknown."""
        return ir.Shape([_dim(size) for size in self.sizes])


def _dim(size: Size) -> int | str | None:
    if size.known is not None:
        return size.known
    return None if any("@" in symbol for symbol in size.symbols) else str(size)


def recipe_types(facts: Facts, recipe: r.Recipe, found: dict[r.Recipe, RecipeType]) -> RecipeType:
    """Type of a recipe and, into `found`, of all its parts.

    Raises:
        NotProvenError: The type or rank of a value of the graph is not known.
    """
    if recipe not in found:
        found[recipe] = _type(facts, recipe, found)
    return found[recipe]


def _type(facts: Facts, recipe: r.Recipe, found: dict[r.Recipe, RecipeType]) -> RecipeType:
    if isinstance(recipe, r.Source):
        sizes, dtype = facts.sizes(recipe.value), facts.dtype(recipe.value)
        if sizes is None or dtype is None:
            node = recipe.value.producer()
            raise NotProvenError("the type of an input is not known", node)
        return RecipeType(dtype, sizes)
    if isinstance(recipe, r.Constant):
        dtype = ir.DataType.from_numpy(recipe.array.dtype)
        return RecipeType(dtype, tuple(map(Size, recipe.array.shape)))
    if isinstance(recipe, r.Produced):
        raise TypeError("an input cannot be made from the node's own output")
    inputs = [recipe_types(facts, item, found) for item in recipe.inputs]
    return _applied(recipe, inputs)


def _applied(recipe: r.Apply, inputs: list[RecipeType]) -> RecipeType:
    attributes = dict(recipe.attributes)
    first = inputs[0]
    if recipe.op_type == "Shape":
        count = _number(attributes["end"]) - _number(attributes["start"])
        return RecipeType(ir.DataType.INT64, (Size(count),))
    if recipe.op_type == "Cast":
        return RecipeType(ir.DataType(_number(attributes["to"])), first.sizes)
    if recipe.op_type == "Where":
        return RecipeType(inputs[1].dtype, _broadcast([item.sizes for item in inputs]))
    if recipe.op_type in ("Add", "Mul", "And"):
        return RecipeType(first.dtype, _broadcast([item.sizes for item in inputs]))
    if recipe.op_type == "Concat":
        axis = attributes["axis"]
        assert isinstance(axis, int)
        return RecipeType(first.dtype, _concatenated([item.sizes for item in inputs], axis))
    return RecipeType(first.dtype, _moved(recipe, first.sizes))


def _moved(recipe: r.Apply, sizes: Sizes) -> Sizes:
    numbers = [
        int(i)
        for item in recipe.inputs[1:]
        if isinstance(item, r.Constant)
        for i in np.atleast_1d(item.array)
    ]
    if recipe.op_type == "Transpose":
        perm = dict(recipe.attributes)["perm"]
        assert isinstance(perm, tuple)
        return tuple(sizes[i] for i in perm)
    if recipe.op_type == "Squeeze":
        return tuple(size for i, size in enumerate(sizes) if i not in numbers)
    if recipe.op_type == "Unsqueeze":
        rest = iter(sizes)
        rank = len(sizes) + len(numbers)
        return tuple(ONE if i in numbers else next(rest) for i in range(rank))
    if recipe.op_type == "Reshape" and not isinstance(recipe.inputs[1], r.Constant):
        return tuple(size if size.count > 0 else _UNKNOWN for size in _listed(recipe.inputs[1]))
    if recipe.op_type == "Reshape":
        return tuple(
            sizes[i] if number == 0 else _UNKNOWN if number < 0 else Size(number)
            for i, number in enumerate(numbers)
        )
    if recipe.op_type == "Expand":
        return _listed(recipe.inputs[1])
    return sizes  # Neg, Not


def _listed(recipe: r.Recipe) -> Sizes:
    """The sizes that a shape spells out."""
    if isinstance(recipe, r.Constant):
        return tuple(Size(int(item)) for item in recipe.array)
    if isinstance(recipe, r.Apply) and recipe.op_type == "Concat":
        return tuple(size for item in recipe.inputs for size in _listed(item))
    return (_UNKNOWN,)


def _number(attribute: int | tuple[int, ...]) -> int:
    assert isinstance(attribute, int)
    return attribute


def _broadcast(shapes: list[Sizes]) -> Sizes:
    rank = max(map(len, shapes))
    padded = [(ONE,) * (rank - len(sizes)) + sizes for sizes in shapes]
    return tuple(_larger(axis) for axis in zip(*padded, strict=True))


def _larger(axis: tuple[Size, ...]) -> Size:
    larger = sorted({size for size in axis if size != ONE}, key=lambda size: len(size.symbols))
    if not larger:
        return ONE
    return larger[0] if len(larger) == 1 or not larger[0].symbols else _UNKNOWN


def _concatenated(shapes: list[Sizes], axis: int) -> Sizes:
    parts = [sizes[axis].known for sizes in shapes]
    known = [part for part in parts if part is not None]
    total = Size(sum(known)) if len(known) == len(parts) else _UNKNOWN
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
