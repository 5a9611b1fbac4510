"""Sizes that an engine takes: outside its profiles there is nothing to compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qkexport.domain import ModelDomain, SizeRange
from qkexport.engine.inspection import is_engine
from qkexport.errors import LoadError, UsageError
from qkexport.manifest import manifest_path, read_manifest


def within_engines(domain: ModelDomain, candidates: Sequence[Path]) -> ModelDomain:
    """A domain narrowed to the sizes that every engine among the candidates was built for.

    Of an engine with several profiles the first counts, which is the one it is meant for.

    Args:
        domain: Of the reference; an input that an engine calls by another name stays as it is.
        candidates: Files; those that are no engines take every size.

    Raises:
        UsageError: No size suits all of them.
    """
    symbols = dict(domain.symbols)
    for symbol, (least, _, most) in _spans(domain, candidates):
        symbols[symbol] = _narrowed(symbol, symbols[symbol], least, most)
    return dataclasses.replace(domain, symbols=symbols)


def optimum_sizes(domain: ModelDomain, candidates: Sequence[Path]) -> dict[str, int]:
    """The sizes that engines among the candidates are best at; the first engine's count."""
    spans = list(_spans(domain, candidates))
    return {symbol: best for symbol, (_, best, _) in reversed(spans)}


def _spans(
    domain: ModelDomain, candidates: Sequence[Path]
) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Symbols with the least, best and largest size that an engine was built for."""
    for profile in map(_first_profile, filter(is_engine, candidates)):
        for item in domain.inputs:
            shapes = profile.get(item.name, ())
            if not shapes or any(len(shape) != len(item.shape) for shape in shapes):
                continue
            low, best, high = shapes
            for dim, span in zip(item.shape, zip(low, best, high, strict=True), strict=True):
                if isinstance(dim, str) and dim in domain.symbols:
                    yield dim, span


def _first_profile(engine: Path) -> Mapping[str, tuple[tuple[int, ...], ...]]:
    try:
        profiles = read_manifest(manifest_path(engine)).profiles
    except LoadError:
        return {}  # whoever loads the engine says what is wrong with its manifest
    return profiles[0] if profiles else {}


def _narrowed(symbol: str, span: SizeRange, least: int, most: int) -> SizeRange:
    minimum = max(span.minimum, least)
    maximum = most if span.maximum is None else min(span.maximum, most)
    if minimum > maximum:
        message = f"Size {symbol} must lie in the engine's {least} to {most}"
        raise UsageError(f"{message}, got {span.minimum} to {span.maximum or 'any'}.")
    narrowed = SizeRange(minimum, maximum)
    if span.traced is None:
        return narrowed
    return dataclasses.replace(narrowed, traced=narrowed.clamp(span.traced))
