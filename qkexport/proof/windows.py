"""Sliding windows: where sequences are shorter than a window, one that is lost goes unnoticed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from qkexport.domain import InputDomain, ModelDomain
from qkexport.onnx_outline import load_outline
from qkexport.proof.cases import is_mask
from qkexport.spec import OP_TYPE


def windows_of(path: Path) -> frozenset[int]:
    """Window sizes of the fused nodes of an .onnx file, in tokens; none for other files."""
    if path.suffix != ".onnx":
        return frozenset()
    try:
        nodes = load_outline(path).graph.node
    except Exception:
        return frozenset()  # whoever opens it next says what is wrong with it
    return frozenset(
        attribute.i
        for node in nodes
        if node.op_type == OP_TYPE
        for attribute in node.attribute
        if attribute.name in {"window_left", "window_right"} and attribute.i >= 0
    )


def reaching_length(window: int) -> int:
    """The shortest sequence in which a window hides a token: the first from the last."""
    return window + 2


def unreached(
    windows: Iterable[int],
    domain: ModelDomain,
    cases: Iterable[Mapping[str, tuple[int, ...]]],
) -> str:
    """What no case tests of a model's windows, for its report; empty if there is nothing.

    A window that is wider than every sequence the model takes has nothing to test.

    Args:
        windows: Sizes in tokens.
        domain: Says which axes are lengths, and how long they may be.
        cases: Shapes of the inputs by name.
    """
    tried = max(
        (_longest(domain, _sizes(domain, shapes).__getitem__) for shapes in cases), default=0
    )
    legal = _longest(domain, functools.partial(_limit, domain))
    wide = sorted(window for window in windows if tried < reaching_length(window) <= legal)
    if not wide:
        return ""
    return (
        f"windows of {', '.join(map(str, wide))} tokens hide nothing at the lengths that were "
        f"tried, at most {tried:g}; --inputs of {reaching_length(wide[-1])} tokens would test them"
    )


def _longest(domain: ModelDomain, size_of: Callable[[str], float]) -> float:
    """A length that no sequence exceeds: the new tokens may follow all the cached ones."""
    dims = {dim for item in domain.inputs for dim in _lengths(item)}
    fixed = max((dim for dim in dims if isinstance(dim, int)), default=0)
    return fixed + sum(size_of(dim) for dim in dims if isinstance(dim, str))


def _lengths(item: InputDomain) -> tuple[int | str, ...]:
    """Axes that may count tokens: not the batch, and not features, `[B,S,C]` or `[B,H,S,D]`."""
    features = "float" in item.dtype and len(item.shape) >= 3 and not is_mask(item)
    return item.shape[1 : len(item.shape) - features]


def _sizes(domain: ModelDomain, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    return {
        dim: size
        for item in domain.inputs
        for dim, size in zip(item.shape, shapes[item.name], strict=True)
        if isinstance(dim, str)
    }


def _limit(domain: ModelDomain, dim: str) -> float:
    span = domain.symbols.get(dim)
    return math.inf if span is None or span.maximum is None else span.maximum
