"""Sizes of dimensions as products, so that a reshape can be proven without knowing the numbers.

`8 * batch * seq` is `Size(8, ("batch", "seq"))`. Equal sizes are equal at run time; unequal ones
may still be, so every proof in this package needs equality or a whole division, never inequality.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

_FACTOR = re.compile(r"[A-Za-z_][\w.:/@]*|\d+")


@dataclasses.dataclass(frozen=True)
class Size:
    """A whole number times a product of named run-time numbers."""

    count: int
    symbols: tuple[str, ...] = ()

    @classmethod
    def parse(cls, dim: int | str) -> Size:
        """Reads a dimension: products are taken apart, any other expression is one symbol."""
        if isinstance(dim, int):
            return cls(dim)
        factors = [factor.strip() for factor in dim.split("*")]
        if not all(_FACTOR.fullmatch(factor) for factor in factors):
            return cls(1, (dim,))
        numbers = [int(factor) for factor in factors if factor.isdigit()]
        names = sorted(factor for factor in factors if not factor.isdigit())
        return cls(math.prod(numbers), tuple(names))

    @property
    def known(self) -> int | None:
        return None if self.symbols else self.count

    def __mul__(self, other: Size) -> Size:
        return Size(self.count * other.count, tuple(sorted((*self.symbols, *other.symbols))))

    def replaced(self, names: Mapping[str, Size]) -> Size:
        """The size with names that stand for other sizes written out."""
        if not any(symbol in names for symbol in self.symbols):
            return self
        total = Size(self.count)
        for symbol in self.symbols:
            total = total * names.get(symbol, Size(1, (symbol,)))
        return total

    def divided_by(self, other: Size) -> Size | None:
        """The exact quotient, or None where there is none for every value of the symbols."""
        if other.count == 0 or self.count % other.count:
            return None
        left, right = Counter(self.symbols), Counter(other.symbols)
        if right - left:
            return None
        return Size(self.count // other.count, tuple(sorted((left - right).elements())))

    def __str__(self) -> str:
        return "*".join(
            [*([str(self.count)] if self.count != 1 or not self.symbols else []), *self.symbols]
        )


ONE = Size(1)
ZERO = Size(0)


def product(sizes: Iterable[Size]) -> Size:
    """The product of all sizes; 1 for none."""
    total = ONE
    for size in sizes:
        total = total * size
    return total
