"""Optimization profiles: the shapes that were given, completed by what they imply."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from qkexport.engine.options import Profile, ShapeRange
from qkexport.errors import UsageError

if TYPE_CHECKING:
    from qkexport.domain import InputDomain, ModelDomain

_LOG: Final = logging.getLogger(__name__)

Span = tuple[int, int, int]

# A size that nothing is known about. A leading axis counts samples: servers start with one and
# batch a few. Any other axis counts tokens or pixels. Past lengths start empty.
_SAMPLES: Final[Span] = (1, 1, 8)
_LENGTH: Final[Span] = (1, 128, 1024)
_PAST: Final[Span] = (0, 128, 1024)


def complete_profiles(domain: ModelDomain, given: Sequence[Profile]) -> tuple[Profile, ...]:
    """One profile for each given one, or one of defaults, each naming every dynamic input.

    A symbol that a given shape fixes has that size in the other inputs too. What then is still
    open gets a default, with a warning that says which.

    Args:
        domain: The model's inputs.
        given: Shapes by input name; may leave inputs out.

    Raises:
        UsageError: A name or shape does not fit the model, or two shapes contradict each other.
    """
    if not domain.is_dynamic and not given:
        return ()
    inputs = {item.name: item for item in domain.inputs}
    for profile in given:
        for name, shapes in profile.items():
            _check_fits(name, shapes, inputs)
    defaults = _defaults(domain)
    return tuple(_complete(domain, profile, defaults) for profile in given or ({},))


def usual_sizes(domain: ModelDomain) -> dict[str, int]:
    """The size of each symbol that a profile of defaults is best at."""
    return {symbol: best for symbol, (_, best, _) in _defaults(domain).items()}


def _check_fits(name: str, shapes: ShapeRange, inputs: Mapping[str, InputDomain]) -> None:
    if name not in inputs:
        message = f"Shape names an input that the model does not have, got {name!r}."
        raise UsageError(message, note=f"the inputs are {', '.join(inputs)}.")
    wanted = inputs[name].shape
    if takes_values(inputs[name]):
        if len(shapes.minimum) != math.prod(int(size) for size in wanted):
            message = f"Shape of input {name} must give its {wanted} values, got {shapes}."
            raise UsageError(message, note="a small integer input of fixed size is a shape itself.")
        return
    fits = len(wanted) == len(shapes.minimum) and all(
        isinstance(dim, str) or {low, best, high} == {dim}
        for dim, low, best, high in zip(
            wanted, shapes.minimum, shapes.optimum, shapes.maximum, strict=True
        )
    )
    if not fits:
        shape = "x".join(map(str, wanted))
        message = f"Shape of input {name} must fit {shape}, got {shapes}."
        raise UsageError(message, note="only named dimensions may vary.")


def takes_values(item: InputDomain) -> bool:
    """Whether `--shape` gives an input's values: its own shape is fixed, so it may be a shape."""
    return item.dtype in ("int32", "int64") and len(item.shape) < 2 and not item.symbols


def _complete(domain: ModelDomain, given: Profile, defaults: Mapping[str, Span]) -> Profile:
    open_inputs = [item for item in domain.inputs if item.symbols and item.name not in given]
    spans = _bound(domain, given)
    assumed = {
        symbol: defaults[symbol]
        for item in open_inputs
        for symbol in item.symbols
        if symbol not in spans
    }
    _warn(assumed)
    completed = {item.name: _range(item, {**spans, **assumed}) for item in open_inputs}
    return {**given, **completed}


def _bound(domain: ModelDomain, given: Profile) -> dict[str, Span]:
    """Sizes of the symbols that stand alone as a dimension of a given shape."""
    spans: dict[str, Span] = {}
    for item in domain.inputs:
        shapes = given.get(item.name)
        if shapes is None or takes_values(item):
            continue
        columns = zip(shapes.minimum, shapes.optimum, shapes.maximum, strict=True)
        for dim, span in zip(item.shape, columns, strict=True):
            if not isinstance(dim, str) or dim not in domain.symbols:
                continue
            if spans.setdefault(dim, span) != span:
                message = f"Shapes must give dimension {dim} one range, got {spans[dim]} and {span}"
                raise UsageError(f"{message} in {item.name}.")
    return spans


def _defaults(domain: ModelDomain) -> dict[str, Span]:
    """A range for each symbol, inside the bounds that the model states."""
    leading = {item.shape[0] for item in domain.inputs if item.shape}
    spans: dict[str, Span] = {}
    for symbol, size in domain.symbols.items():
        past = any(word in symbol.lower() for word in ("past", "cache"))
        low, best, high = _PAST if past else _SAMPLES if symbol in leading else _LENGTH
        low = low if past else size.clamp(low)
        spans[symbol] = (low, max(low, size.clamp(size.traced or best)), size.clamp(high))
        spans[symbol] = (low, min(spans[symbol][1], spans[symbol][2]), spans[symbol][2])
    return spans


def _range(item: InputDomain, spans: Mapping[str, Span]) -> ShapeRange:
    low, best, high = (
        item.shape_at({symbol: span[place] for symbol, span in spans.items()}) for place in range(3)
    )
    return ShapeRange(low, best, high)


def _warn(assumed: Mapping[str, Span]) -> None:
    if assumed:
        spans = (
            f"{name} {low}..{high} (best at {best})" for name, (low, best, high) in assumed.items()
        )
        _LOG.warning("no --shape says how these sizes vary, assuming %s", ", ".join(spans))
