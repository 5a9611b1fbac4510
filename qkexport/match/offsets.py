"""Numbers that are not known before run time but are sums of sizes: `past + 1`, `2 * seq - 3`."""

from __future__ import annotations

import dataclasses

from qkexport.match.sizes import Size


@dataclasses.dataclass(frozen=True)
class Offset:
    """A whole number plus multiples of run-time sizes, and of numbers by batch entry.

    Attributes:
        number: The whole number.
        sizes: Multiples, by the symbols of a size or of a vector; none is zero.
    """

    number: int = 0
    sizes: frozenset[tuple[tuple[str, ...], int]] = frozenset()

    @classmethod
    def of(cls, size: Size) -> Offset:
        if size.known is not None or not size.count:
            return cls(size.count)
        return cls(0, frozenset({(size.symbols, size.count)}))

    def plus(self, other: Offset, times: int = 1) -> Offset:
        total = dict(self.sizes)
        for symbols, count in other.sizes:
            total[symbols] = total.get(symbols, 0) + times * count
        kept = frozenset((symbols, count) for symbols, count in total.items() if count)
        return Offset(self.number + times * other.number, kept)

    @property
    def known(self) -> int | None:
        return None if self.sizes else self.number
