"""Which logical axes each axis of a tensor holds.

A layout has one entry per tensor axis, major to minor. An entry lists the factors it is made of:
`[batch, seqlen, num_heads * head_dim]` is `((b,), (s,), (h, d))`, an axis of size one is `()`.
A factor is a digit of a logical index, as in a mixed-radix number: it runs over `size` values and
each step moves the logical index by `stride`. So heads that a reshape takes apart into groups,
`h -> (h with stride 2, h with stride 1)`, remain known exactly and join again by themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from qkexport.match.sizes import ONE, Size, product

BATCH, HEAD, ROW, COLUMN, CHANNEL = "batch", "head", "row", "column", "channel"


@dataclasses.dataclass(frozen=True)
class Factor:
    """Part of a logical axis.

    Attributes:
        label: The logical axis: batch, head, row (query or key token), column (key token of the
            scores) or channel.
        size: Number of values.
        stride: Step of the logical index.
    """

    label: str
    size: Size
    stride: Size = ONE

    def split(self, major: Size) -> tuple[Factor, Factor] | None:
        """The factor as `major` values of a coarse digit and the rest as a fine one."""
        minor = self.size.divided_by(major)
        if minor is None:
            return None
        return (
            Factor(self.label, major, self.stride * minor),
            Factor(self.label, minor, self.stride),
        )


Axis = tuple[Factor, ...]
Layout = tuple[Axis, ...]


def axis(label: str, size: Size) -> Axis:
    """A whole logical axis as one tensor axis."""
    return () if size == ONE else (Factor(label, size),)


def joined(factors: Iterable[Factor]) -> Axis:
    """Neighbouring digits of one logical axis as one factor, size one dropped."""
    result: list[Factor] = []
    for factor in factors:
        last = result[-1] if result else None
        if factor.size == ONE:
            continue
        if last and last.label == factor.label and last.stride == factor.stride * factor.size:
            result[-1] = Factor(factor.label, last.size * factor.size, factor.stride)
        else:
            result.append(factor)
    return tuple(result)


def axis_size(factors: Axis) -> Size:
    return product(factor.size for factor in factors)


def labels(factors: Axis) -> tuple[str, ...]:
    return tuple(factor.label for factor in factors)


def axes_with(layout: Layout, label: str) -> tuple[int, ...]:
    """Tensor axes that hold any part of a logical axis."""
    return tuple(i for i, factors in enumerate(layout) if label in labels(factors))


def extent(layout: Layout, label: str) -> Size:
    """Number of values of a logical axis; 1 where it is absent."""
    return product(f.size for factors in layout for f in factors if f.label == label)


def in_digits(layout: Layout, names: Iterable[str]) -> bool:
    """Whether any of these logical axes is there in more than one digit."""
    present = [factor.label for factors in layout for factor in factors]
    return any(present.count(name) > 1 for name in names)


def regroup(layout: Layout, sizes: Sequence[Size]) -> Layout | None:
    """The layout after a row-major reshape to `sizes`, or None where it cannot be proven.

    A factor is split where an axis of the result ends inside it.
    """
    waiting = [factor for factors in layout for factor in factors]
    result: list[Axis] = []
    for size in sizes:
        taken = _take(waiting, size)
        if taken is None:
            return None
        result.append(joined(taken))
    return None if waiting else tuple(result)


def _take(waiting: list[Factor], size: Size) -> list[Factor] | None:
    """Moves the leading factors whose product is `size` out of `waiting`."""
    taken: list[Factor] = []
    while size != ONE:
        if not waiting:
            return None
        factor = waiting.pop(0)
        rest = size.divided_by(factor.size)
        if rest is None:
            parts = factor.split(size)
            if parts is None:
                return None
            factor, minor = parts
            waiting.insert(0, minor)
            rest = ONE
        taken.append(factor)
        size = rest
    return taken


def are_whole(layout: Layout, reference: Layout, names: Iterable[str]) -> bool:
    """Whether each of these logical axes, where a layout has it, has all its values."""
    for name in names:
        digits = [factor for factors in layout for factor in factors if factor.label == name]
        if digits and product(factor.size for factor in digits) != extent(reference, name):
            return False
    return True
