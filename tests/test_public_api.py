"""`import qkexport` is light, and its names are what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import qkexport
from qkexport.cli.command import COMMANDS

_VERBS = [name for name in COMMANDS if name not in ("run",)]  # `run` only prints


@pytest.mark.parametrize("name", qkexport.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(qkexport, name)
    assert isinstance(value, str) or value.__doc__


@pytest.mark.parametrize("name", _VERBS)
def test_every_verb_is_a_function_whose_result_tells_good_from_bad(name: str) -> None:
    verb = getattr(qkexport, name)
    result = getattr(qkexport, verb.__annotations__["return"].split(".")[-1])
    assert "__bool__" in vars(result)


def test_no_submodule_hides_a_public_name() -> None:
    folder = Path(qkexport.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    assert not modules & set(qkexport.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'konvert'"):
        _ = qkexport.konvert


def test_importing_the_package_imports_the_standard_library_alone() -> None:
    code = "import sys; old = set(sys.modules); import qkexport; print(*set(sys.modules) - old)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert roots - sys.stdlib_module_names == {"qkexport"}
