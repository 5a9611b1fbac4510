"""Tensors whose elements are known from their indices: numbers, position numbers, decided masks.

    arange(s)[None, :] + past       element [0, j] is past + j
    arange(s) - arange(s)           zero everywhere
    arange(s) < 0                   false everywhere

An element is a sum of the tensor's indices, each times a slope, plus an offset that may hold sizes
known only at run time. A bool tensor is known where all its elements are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qkexport.match.offsets import Offset
from qkexport.match.sizes import ONE, Size

# Far from where int32 wraps: axes of masks have fewer than 2**22 elements.
_MAX_NUMBER: Final = 1 << 30
_MAX_SLOPE: Final = 1 << 8


@dataclasses.dataclass(frozen=True)
class Affine:
    """offset + sum of slopes[k] * index[k].

    Attributes:
        offset: The element at index zero.
        slopes: By axis of the tensor; zero where its size is one.
    """

    offset: Offset
    slopes: tuple[int, ...] = ()

    @property
    def is_uniform(self) -> bool:
        """Whether all elements are equal."""
        return not any(self.slopes)

    @property
    def known(self) -> int | None:
        """The number that every element is."""
        return self.offset.known if self.is_uniform else None

    def plus(self, other: Affine, times: int = 1) -> Affine:
        slopes = (a + times * b for a, b in zip(self.slopes, other.slopes, strict=True))
        return Affine(self.offset.plus(other.offset, times), tuple(slopes))

    def times(self, number: int) -> Affine:
        offset = Offset().plus(self.offset, number)
        return Affine(offset, tuple(number * slope for slope in self.slopes))

    @property
    def is_small(self) -> bool:
        """Whether no arithmetic on it can wrap."""
        factors = [*self.slopes, *(count for _, count in self.offset.sizes)]
        return abs(self.offset.number) <= _MAX_NUMBER and all(
            abs(factor) <= _MAX_SLOPE for factor in factors
        )


Element: TypeAlias = Affine | bool


def number(value: int, rank: int) -> Affine:
    """One number everywhere."""
    return Affine(Offset(value), (0,) * rank)


def is_at_least(affine: Affine, least: int, sizes: Sequence[Size]) -> bool:
    """Whether no element of a tensor is smaller; an empty tensor has no elements.

    Args:
        affine: The elements.
        least: The bound.
        sizes: Of the tensor.
    """
    lowest = affine.offset.plus(Offset(-least))
    for slope, size in zip(affine.slopes, sizes, strict=True):
        if slope < 0:  # smallest at the last index
            lowest = lowest.plus(Offset.of(size).plus(Offset(-1)), slope)
    if any(count < 0 for _, count in lowest.sizes):
        return False
    positive = {symbol for size in sizes for symbol in size.symbols}  # else there is no element
    smallest = (count for symbols, count in lowest.sizes if positive.issuperset(symbols))
    return lowest.number + sum(smallest) >= 0


def broadcast(element: Affine, sizes: Sequence[Size], target: Sequence[Size]) -> Affine | None:
    """A tensor repeated along leading axes and axes of size one; None where that is not proven."""
    added = len(target) - len(sizes)
    if added < 0:
        return None
    slopes = [0] * added
    for slope, size, goal in zip(element.slopes, sizes, target[added:], strict=True):
        if slope and size not in (ONE, goal):
            return None  # it may be one at run time
        slopes.append(0 if size == ONE else slope)
    return Affine(element.offset, tuple(slopes))


def of_array(array: npt.NDArray[np.generic]) -> Element | None:
    """The elements of a constant of integers or bools."""
    if array.dtype == np.bool_ and array.size:
        return bool(array.all()) if array.all() == array.any() else None
    if array.dtype not in (np.int64, np.int32) or not array.size:
        return None
    start = (0,) * array.ndim
    first = int(array[start])
    if abs(first) > _MAX_NUMBER:
        return None
    fitted: npt.NDArray[np.int64] = np.full((1,) * array.ndim, first, np.int64)
    slopes = []
    for place, size in enumerate(array.shape):
        step = (*start[:place], 1, *start[place + 1 :])
        slopes.append(int(array[step]) - first if size > 1 else 0)
        if abs(slopes[-1]) > _MAX_SLOPE:
            return None
        along = [size if i == place else 1 for i in range(array.ndim)]
        fitted = fitted + slopes[-1] * np.arange(size).reshape(along)
    return Affine(Offset(first), tuple(slopes)) if np.array_equal(array, fitted) else None
