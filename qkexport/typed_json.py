"""JSON as frozen dataclasses: every value has the type that its field states, or is refused."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any


def from_json(kind: Any, value: Any, name: str) -> Any:
    """A value of JSON as what a type annotation states.

    Args:
        kind: A dataclass, `str`, `int`, `None`, `Any`, or a union, `tuple[X, ...]` or
            `dict[str, X]` of such.
        value: What `json.loads` gave.
        name: Of the value, for messages.

    Raises:
        TypeError: A value has another type; a field is missing or unknown.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is types.UnionType:
        if value is None and types.NoneType in arguments:
            return None
        return from_json(arguments[0], value, name)
    if dataclasses.is_dataclass(kind):
        return _record(kind, _of(dict, value, name), name)
    if origin is tuple:
        items = enumerate(_of(list, value, name))
        return tuple(from_json(arguments[0], item, f"{name}[{place}]") for place, item in items)
    if origin is dict:
        fields = _of(dict, value, name).items()
        return {key: from_json(arguments[1], item, f"{name}.{key}") for key, item in fields}
    return _of(kind, value, name)


def _record(kind: Any, fields: dict[str, Any], name: str) -> Any:
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(fields) - set(hints))
    if unknown:
        raise TypeError(f"{name} with an unknown field {unknown[0][:60]!r}")
    values = {key: from_json(hints[key], item, f"{name}.{key}") for key, item in fields.items()}
    return kind(**values)


def _of(kind: type, value: Any, name: str) -> Any:
    if type(value) is not kind:  # True is no int here
        raise TypeError(f"{name} of type {type(value).__name__}, not {kind.__name__}")
    return value
