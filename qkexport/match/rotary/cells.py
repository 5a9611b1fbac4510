"""Channels of a value as sums of signed, weighted channels of another, and arrays of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from qkexport.match.layout import CHANNEL, Axis, Factor, Layout, axis_size, labels
from qkexport.match.sizes import Size


@dataclasses.dataclass(frozen=True)
class Term:
    """number * angle * source[channel].

    Attributes:
        channel: Channel of the source.
        number: Constant factor.
        angles: Run-time factors: index into `Channels.angles` and the channel read there.
    """

    channel: int
    number: float = 1.0
    angles: tuple[tuple[int, int], ...] = ()


Cell: TypeAlias = tuple[Term, ...]
Cells: TypeAlias = npt.NDArray[Any]  # of Cell, one axis for each axis that holds channels


# Channel number of what a scatter has not written.
UNDEFINED: Final = -1


class NotLinearError(Exception):
    """The value is not a channel-wise linear function of the source."""


def channel_axes(layout: Layout) -> list[int]:
    """Axes that hold channels; each must hold nothing else."""
    axes = [i for i, factors in enumerate(layout) if CHANNEL in labels(factors)]
    if any(set(labels(layout[i])) != {CHANNEL} for i in axes):
        raise NotLinearError
    return axes


def channel_dims(layout: Layout) -> list[int]:
    dims = [axis_size(layout[i]).known for i in channel_axes(layout)]
    if any(dim is None for dim in dims):
        raise NotLinearError
    return [dim or 0 for dim in dims]


def counted_in_order(layout: Layout) -> Layout:
    """The layout with one digit for each axis of channels: cells count them as they lie."""
    places = channel_axes(layout)
    return tuple(
        (Factor(CHANNEL, axis_size(factors)),) if i in places else factors
        for i, factors in enumerate(layout)
    )


def with_channels(layout: Layout, place: int, size: int) -> Layout:
    axis: Axis = () if size == 1 else (Factor(CHANNEL, Size(size)),)
    return (*layout[:place], axis, *layout[place + 1 :])


def channel_index(layout: Layout, place: int) -> int:
    """Position of a tensor axis among the axes of its cells."""
    return sum(axis < place for axis in channel_axes(layout))


def with_axis(cells: Cells, layout: Layout, place: int) -> Cells:
    """Cells with an axis of length one for a tensor axis of size one."""
    return cells if layout[place] else np.expand_dims(cells, channel_index(layout, place))


def elementwise(function: Callable[[Any, Any], Cell], left: Cells, right: Cells) -> Cells:
    if left.shape != right.shape:
        raise NotLinearError
    result = np.empty(left.shape, object)
    for index in np.ndindex(left.shape):
        result[index] = function(left[index], right[index])
    return result


def times(cell: Cell, number: float) -> Cell:
    return tuple(dataclasses.replace(term, number=term.number * float(number)) for term in cell)


def scaled(cells: Cells, number: float) -> Cells:
    return elementwise(times, cells, np.full(cells.shape, number))


def with_factor(cell: Cell, factor: Cell) -> Cell:
    """A channel times one signed run-time number."""
    if len(factor) != 1:
        raise NotLinearError
    by = factor[0]
    return tuple(
        Term(term.channel, term.number * by.number, (*term.angles, *by.angles)) for term in cell
    )


def with_angle(cell: Cell, index: int, channel: int) -> Cell:
    return tuple(
        dataclasses.replace(term, angles=(*term.angles, (index, channel))) for term in cell
    )
