"""Sources named `package.module:factory`: import the module, call the factory, check its answer."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qkexport.errors import LoadError

if TYPE_CHECKING:
    from types import ModuleType

_FACTORY_NAME: Final = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<factory>[A-Za-z_][\w.]*)")
_ANSWERS: Final = (
    "a factory returns module, (module, args), (module, args, kwargs) or "
    "(module, args, kwargs, dynamic_shapes)."
)


def is_factory_name(source: str) -> bool:
    """True for text of the form `package.module:factory`."""
    return _FACTORY_NAME.fullmatch(source) is not None


def call_factory(source: str) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """Imports and calls a factory; the working directory is importable while it runs.

    Args:
        source: `package.module:factory`.

    Returns:
        Module, args, kwargs and dynamic_shapes (None where the factory gave none).

    Raises:
        LoadError: The module or the factory cannot be found, fails, or returns something else.
    """
    match = _FACTORY_NAME.fullmatch(source)
    if match is None:
        raise LoadError(f"Factory must be package.module:factory, got {source!r}.", note=_ANSWERS)
    factory = _find(source, _import(source, match["module"]), match["factory"])
    try:
        answer = factory()
    except Exception as error:
        message = f"Factory {source} must return a model, got {type(error).__name__}: {error}."
        raise LoadError(message, hint="call the factory in Python to see where.") from error
    return check_answer(f"Factory {source} must return", answer)


def _import(source: str, name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise _refuse_import(source, error) from error
        message = f"Factory {source} must name a module, got none called {error.name!r}."
        raise LoadError(message, hint=f"run from the folder that holds it, not {folder}.") from None
    except Exception as error:
        raise _refuse_import(source, error) from error


def _refuse_import(source: str, error: Exception) -> LoadError:
    text = f"{type(error).__name__}: {error}"
    return LoadError(f"Factory {source} must be importable, got {text}.")


def _find(source: str, module: ModuleType, name: str) -> Callable[[], Any]:
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            close = difflib.get_close_matches(part, dir(target), n=1)
            message = f"Factory {source} must exist, got no {part!r} in {target.__name__}."
            raise LoadError(message, hint=f"did you mean {close[0]!r}?" if close else None)
        target = getattr(target, part)
    if _is_module(target):
        return lambda: target
    if not callable(target):
        message = f"Factory {source} must be callable, got {type(target).__name__}."
        raise LoadError(message, note=_ANSWERS)
    return target  # type: ignore[no-any-return]


def _is_module(value: object) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def check_answer(rule: str, answer: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """A module with its inputs as four parts.

    Args:
        rule: How an error message begins, as in `Factory a:b must return`.
        answer: A module, or a tuple that starts with one.

    Raises:
        LoadError: It is something else.
    """
    parts = answer if isinstance(answer, tuple) else (answer,)
    if not 1 <= len(parts) <= 4 or not _is_module(parts[0]):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise LoadError(f"{rule} a model, got ({kinds}).", note=_ANSWERS)
    module, args, kwargs, dynamic_shapes = parts + (None,) * (4 - len(parts))
    args = () if args is None else args
    if not isinstance(args, tuple | list):
        args = (args,)  # a single tensor, as torch.export's callers often pass
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(kwargs, Mapping):
        message = f"{rule} kwargs as a mapping, got {type(kwargs).__name__}."
        raise LoadError(message, note=_ANSWERS)
    return module, tuple(args), dict(kwargs), dynamic_shapes
