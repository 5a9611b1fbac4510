"""Sizes that an engine takes: outside its profiles there is nothing to compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from qkexport.domain import ModelDomain, SizeRange
from qkexport.engine.inspection import is_engine
from qkexport.errors import LoadError, UsageError
from qkexport.manifest import Manifest, manifest_path, read_manifest


def within_engines(domain: ModelDomain, candidates: Sequence[Path]) -> ModelDomain:
    """A domain narrowed to the sizes that every engine among the candidates was built for.

    Of an engine with several profiles the first counts, which is the one it is meant for.

    Args:
        domain: Of the reference; an input that an engine calls by another name stays as it is.
        candidates: Files; those that are no engines take every size.

    Raises:
        UsageError: No size suits all of them.
    """
    for path in candidates:
        if not is_engine(path):
            continue
        try:
            manifest = read_manifest(manifest_path(path))
        except LoadError:
            continue  # whoever loads the engine says what is wrong with its manifest
        domain = _within(domain, manifest)
    return domain


def _within(domain: ModelDomain, manifest: Manifest) -> ModelDomain:
    profile = manifest.profiles[0] if manifest.profiles else {}
    symbols = dict(domain.symbols)
    for item in domain.inputs:
        shapes = profile.get(item.name)
        if shapes is None or any(len(shape) != len(item.shape) for shape in shapes):
            continue
        low, _, high = shapes
        for dim, least, most in zip(item.shape, low, high, strict=True):
            if isinstance(dim, str) and dim in symbols:
                symbols[dim] = _narrowed(dim, symbols[dim], least, most)
    return dataclasses.replace(domain, symbols=symbols)


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
