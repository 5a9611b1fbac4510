"""Reads .pt2 files (torch.export.save) without letting them run code of their own.

torch.export.load trusts its file: it unpickles sample inputs, odd tensors and custom objects, loads
compiled libraries, and hands text to eval (sizes go through sympy, guards through exec). Here an
archive is loaded only when none of that can run anything: pickles are read with weights_only, and
every text that would be evaluated must be plain arithmetic.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qkexport.errors import LoadError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# torch.load reads this at every call; it overrides a caller's weights_only=False.
_FORCE_WEIGHTS_ONLY: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NO_WEIGHTS_ONLY: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"

_CODE_RECORDS: Final = ("data/constants/custom_obj_", "data/constants/opaque_obj_", "data/aot")
_IMPORTING_SPECS: Final = ("__enum__", "default_factory_module")

# sympy's srepr of a size, and the arithmetic torch adds to it.
_SIZE_FUNCTIONS: Final = frozenset(
    {
        "Abs", "Add", "And", "Eq", "Equality", "Float", "Ge", "GreaterThan", "Gt", "Integer", "Le",
        "LessThan", "Lt", "Max", "Min", "Mod", "Mul", "Ne", "Not", "Or", "Piecewise", "Pow",
        "Rational", "StrictGreaterThan", "StrictLessThan", "Symbol", "Unequality", "ceiling",
        "floor", "CeilDiv", "CeilToInt", "CleanDiv", "FloatPow", "FloatTrueDiv", "FloorDiv",
        "FloorToInt", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "LShift",
        "ModularIndexing", "PowByNatural", "PythonMod", "RShift", "RoundDecimal", "RoundToInt",
        "ToFloat", "TruncToFloat", "TruncToInt", "Where", "true", "false",
    }
)  # fmt: skip
_GUARD_FUNCTIONS: Final = _SIZE_FUNCTIONS | {"max", "min", "size", "stride", "storage_offset"}
_GUARD_NAMES: Final = frozenset({"L", "math", "inf"})
_ARITHMETIC: Final = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_PLAIN_TEXT: Final = re.compile(r"[\w.\-/ ]*")


def load_program(path: Path, *, allow_pickle: bool = False) -> ExportedProgram:
    """Loads an exported program.

    Args:
        path: A file that torch.export.save wrote.
        allow_pickle: Trust the file as torch.export.load does; it may then run any code.

    Raises:
        LoadError: The file is damaged, of another version of torch, or would run code.
    """
    import torch
    from torch.export.pt2_archive._package import load_pt2

    try:
        if allow_pickle:
            return torch.export.load(path)
        with path.open("rb") as stream, _weights_only():
            _refuse_code(path, stream)
            stream.seek(0)
            programs = load_pt2(stream).exported_programs
    except LoadError:
        raise
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise _untrusted(path, f"a pickled {found[1] if found else 'object'}") from None
    except Exception as error:
        message = f"Source {path} must be a readable .pt2, got {_first_line(error)}."
        hint = f"save it again with torch.export.save of torch {torch.__version__}."
        raise LoadError(message, hint=hint) from error
    if len(programs) != 1:
        raise LoadError(f"Source {path} must hold one program, got {sorted(programs)}.")
    return next(iter(programs.values()))


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in (_FORCE_WEIGHTS_ONLY, _FORCE_NO_WEIGHTS_ONLY)}
    os.environ[_FORCE_WEIGHTS_ONLY] = "1"
    os.environ.pop(_FORCE_NO_WEIGHTS_ONLY, None)
    try:
        yield
    finally:
        for name, value in saved.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _refuse_code(path: Path, stream: Any) -> None:
    # The listing comes from the reader that torch.export.load uses: two zip parsers may disagree.
    from torch.export.pt2_archive._package import PT2ArchiveReader

    with PT2ArchiveReader(stream) as archive:
        names = archive.get_file_names()
        for name in names:
            if name.startswith(_CODE_RECORDS):
                raise _untrusted(path, f"the record {name}")
        models = [name for name in names if name.startswith("models/")]
        if not models:
            message = f"Source {path} must be written by torch 2.8 or later, got an older .pt2."
            raise LoadError(message, hint="save it again with torch.export.save.")
        for name in models:
            _refuse_text(path, json.loads(archive.read_string(name)))


def _refuse_text(path: Path, value: Any, key: str = "") -> None:
    """Walks a program's JSON and refuses text that would do more than arithmetic when evaluated."""
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_text(path, item, name)
    elif isinstance(value, list):
        for item in value:
            _refuse_text(path, item, key)
    elif isinstance(value, str) and not _is_harmless(key, value):
        raise _untrusted(path, f"{key} {value[:60]!r}")


def _is_harmless(key: str, text: str) -> bool:
    if key == "expr_str":
        return is_arithmetic(text)
    if key == "guards_code":
        return is_arithmetic(text, guard=True)
    if key in ("in_spec", "out_spec"):
        return _is_plain_tree(text)
    return key != "as_operator" or text.startswith("torch.ops.")


def is_arithmetic(text: str, *, guard: bool = False) -> bool:
    """True if Python text is arithmetic on sizes: known functions, numbers and symbol names only.

    Args:
        text: What torch would evaluate.
        guard: Also accept the sizes of named inputs, as in `L['x'].size()[0] == 8`.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return False
    return all(_is_arithmetic_node(node, guard) for node in ast.walk(tree))


def _is_arithmetic_node(node: ast.AST, guard: bool) -> bool:
    functions = _GUARD_FUNCTIONS if guard else _SIZE_FUNCTIONS
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
        name = name.id if isinstance(name, ast.Name) else name
        return name in functions and (guard or not isinstance(node.func, ast.Attribute))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        is_name = node.value.isidentifier()
        return is_name or (guard and _PLAIN_TEXT.fullmatch(node.value) is not None)
    if isinstance(node, ast.Name) and guard:
        return node.id in _GUARD_NAMES | functions
    if isinstance(node, ast.Attribute):
        return guard and not node.attr.startswith("_")
    if isinstance(node, ast.Subscript):
        return guard
    return isinstance(node, _ARITHMETIC)


def _is_plain_tree(text: str) -> bool:
    """True if a pytree spec names no module to import and no key that would break out of quotes."""
    if any(word in text for word in _IMPORTING_SPECS):
        return False
    try:
        return all(map(_is_plain_text, _texts(json.loads(text))))
    except ValueError:
        return False


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _is_plain_text(text: str) -> bool:
    if text[:1] in ("[", "{", '"'):  # a context is JSON inside JSON
        return all(map(_is_plain_text, _texts(json.loads(text))))
    return _PLAIN_TEXT.fullmatch(text) is not None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def _untrusted(path: Path, value: str) -> LoadError:
    return LoadError(
        f"Source {path} must not run code when it is loaded, got {value}.",
        note="a .pt2 may hold pickled tensors and plain arithmetic on sizes; nothing was run.",
        hint="pass --allow-pickle if you trust the file.",
    )
