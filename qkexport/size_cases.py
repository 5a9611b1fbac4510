"""Which sizes a conversion is checked at: those it was traced at, 1, and odd larger ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final

from qkexport.domain import ModelDomain, SizeRange

_LARGE: Final = 64  # beyond this, three times as long only takes longer
_BATCH: Final = 2
_LENGTH: Final = 8


@dataclasses.dataclass(frozen=True)
class SizeCase:
    """Sizes to try, best first: a source may refuse some combinations of sizes."""

    label: str
    candidates: tuple[Mapping[str, int], ...]


def size_cases(domain: ModelDomain) -> tuple[SizeCase, ...]:
    """The sizes to check a model at; the first case is the traced one.

    Symbols of equal traced size get equal sizes, since models often tie axes that their graph does
    not tie.
    """
    traced: Mapping[str, int] = {symbol: _traced(domain, symbol) for symbol in domain.symbols}
    tried: dict[str, list[Mapping[str, int]]] = {
        "traced": [traced],
        "one": [_changed(domain, traced, lambda _: 1)],
        "odd": [
            _odd_sizes(domain, _changed(domain, traced, _growth(domain, traced))),
            _changed(domain, traced, lambda size: 2 * size),
            _changed(domain, traced, lambda size: size + 1),
        ],
    }
    cases: list[SizeCase] = []
    seen: list[Mapping[str, int]] = []
    for label, candidates in tried.items():
        fresh = tuple(sizes for sizes in candidates if sizes not in seen)
        seen.extend(fresh)
        if fresh:
            cases.append(SizeCase(label, fresh))
    return tuple(cases)


def _growth(domain: ModelDomain, traced: Mapping[str, int]) -> Callable[[int], int]:
    """Lengths grow to three times; batch sizes by one, since more of them only takes longer."""
    lengths = {size for symbol, size in traced.items() if not _is_batch(domain, symbol)}

    def larger(size: int) -> int:
        if size not in lengths:
            return size + 1
        return 3 * size if size <= _LARGE else size // 2

    return larger


def _odd_sizes(domain: ModelDomain, sizes: Mapping[str, int]) -> Mapping[str, int]:
    return {symbol: _odd(domain.symbols[symbol], size) for symbol, size in sizes.items()}


def _odd(span: SizeRange, size: int) -> int:
    return next((near for near in (size | 1, size - 1) if span.clamp(near) == near), size)


def _changed(
    domain: ModelDomain, traced: Mapping[str, int], change: Callable[[int], int]
) -> Mapping[str, int]:
    return {symbol: domain.symbols[symbol].clamp(change(size)) for symbol, size in traced.items()}


def _traced(domain: ModelDomain, symbol: str) -> int:
    span: SizeRange = domain.symbols[symbol]
    if span.traced is not None:
        return span.traced
    return span.clamp(_BATCH if _is_batch(domain, symbol) else _LENGTH)


def _is_batch(domain: ModelDomain, symbol: str) -> bool:
    """True for a symbol that is the first axis wherever it is one, and somewhere not the only."""
    shapes = [item.shape for item in domain.inputs if symbol in item.shape]
    leading = all(shape[0] == symbol and symbol not in shape[1:] for shape in shapes)
    return leading and any(len(shape) > 1 for shape in shapes)
