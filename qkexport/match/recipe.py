"""How an input of the fused node is made from values of the graph.

Matching only reads, so it answers with recipes: small trees of standard operators over existing
values. What depends on constants alone is computed here and now. Rewriting turns recipes into
nodes, equal recipes into one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qkexport.match.constants import Array


@dataclasses.dataclass(frozen=True)
class Source:
    """A value of the graph as it is."""

    value: ir.Value


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A new constant."""

    array: Array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, tuple[int, ...], bytes]:
        return self.array.dtype.name, self.array.shape, self.array.tobytes()


@dataclasses.dataclass(frozen=True)
class Produced:
    """An output of the fused node itself."""

    name: str


@dataclasses.dataclass(frozen=True)
class Apply:
    """A standard operator with one output.

    Attributes:
        op_type: Name of the operator.
        inputs: Its inputs.
        attributes: Its attributes, by name.
    """

    op_type: str
    inputs: tuple[Recipe, ...]
    attributes: tuple[tuple[str, int | tuple[int, ...]], ...] = ()


Recipe: TypeAlias = Source | Constant | Produced | Apply


def integers(items: Sequence[int]) -> Constant:
    return Constant(np.asarray(items, np.int64))


def floats(array: npt.ArrayLike) -> Constant:
    return Constant(np.asarray(array, np.float32))


def transpose(recipe: Recipe, perm: Sequence[int]) -> Recipe:
    if list(perm) == list(range(len(perm))):
        return recipe
    if isinstance(recipe, Constant):
        return Constant(np.ascontiguousarray(recipe.array.transpose(perm)))
    return Apply("Transpose", (recipe,), (("perm", tuple(perm)),))


def reshape(recipe: Recipe, shape: Sequence[int]) -> Recipe:
    """Reshapes; 0 copies a dimension and one -1 is what remains, as in ONNX."""
    if isinstance(recipe, Constant):
        filled = [recipe.array.shape[i] if dim == 0 else dim for i, dim in enumerate(shape)]
        return Constant(recipe.array.reshape(filled))
    if isinstance(recipe, Apply) and recipe.op_type == "Reshape" and min(shape) > 0:
        return reshape(recipe.inputs[0], shape)
    if isinstance(recipe, Source) and _static_shape(recipe.value) == tuple(shape):
        return recipe
    return Apply("Reshape", (recipe, integers(shape)))


def _static_shape(value: ir.Value) -> tuple[int, ...] | None:
    shape = value.shape
    if shape is None or not shape.is_static():
        return None
    return tuple(int(dim) for dim in shape.numpy())


def squeeze(recipe: Recipe, axes: Sequence[int]) -> Recipe:
    if not axes:
        return recipe
    if isinstance(recipe, Constant):
        return Constant(recipe.array.squeeze(tuple(axes)))
    return Apply("Squeeze", (recipe, integers(axes)))


def unsqueeze(recipe: Recipe, axes: Sequence[int]) -> Recipe:
    if not axes:
        return recipe
    if isinstance(recipe, Constant):
        return Constant(np.expand_dims(recipe.array, tuple(axes)))
    return Apply("Unsqueeze", (recipe, integers(axes)))


def cast(recipe: Recipe, dtype: ir.DataType) -> Recipe:
    if isinstance(recipe, Source) and recipe.value.dtype == dtype:
        return recipe
    if isinstance(recipe, Constant):
        return Constant(recipe.array.astype(dtype.numpy()))
    return Apply("Cast", (recipe,), (("to", int(dtype)),))


def negative(recipe: Recipe) -> Recipe:
    if isinstance(recipe, Constant):
        return Constant(np.negative(recipe.array))
    return Apply("Neg", (recipe,))


def binary(op_type: str, left: Recipe, right: Recipe) -> Recipe:
    """Add, Mul or And; both inputs must have one element type."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        ufunc = {"Add": np.add, "Mul": np.multiply, "And": np.logical_and}[op_type]
        return Constant(np.asarray(ufunc(left.array, right.array)))
    return Apply(op_type, (left, right))


def concat(parts: Sequence[Recipe], axis: int) -> Recipe:
    if len(parts) == 1:
        return parts[0]
    arrays = [part.array for part in parts if isinstance(part, Constant)]
    if len(arrays) == len(parts):
        return Constant(np.concatenate(arrays, axis))
    return Apply("Concat", tuple(parts), (("axis", axis),))


def shape_of(recipe: Recipe, start: int, end: int) -> Recipe:
    """Sizes of some axes, int64."""
    return Apply("Shape", (recipe,), (("start", start), ("end", end)))


def sources(recipe: Recipe) -> tuple[ir.Value, ...]:
    """Values of the graph that a recipe reads."""
    if isinstance(recipe, Source):
        return (recipe.value,)
    if isinstance(recipe, Apply):
        return tuple(value for item in recipe.inputs for value in sources(item))
    return ()


def negation(recipe: Recipe) -> Recipe:
    """Logical not."""
    if isinstance(recipe, Constant):
        return Constant(np.logical_not(recipe.array))
    return Apply("Not", (recipe,))


def where(condition: Recipe, chosen: Recipe, other: Recipe) -> Recipe:
    parts = (condition, chosen, other)
    arrays = [part.array for part in parts if isinstance(part, Constant)]
    if len(arrays) == 3:
        return Constant(np.where(*arrays))
    return Apply("Where", parts)
