"""Imports point one way: command line, then stages, then operator, then errors."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import qkexport

PACKAGE = Path(qkexport.__file__).parent

# A module may import at module level only from its own layer or a lower one. Longest prefix wins.
LAYERS = {
    "errors": 0,
    "_version": 0,
    "spec": 1,
    "signature": 2,
    "native": 3,
    "native_params": 2,
    "": 5,
    "cli": 6,
    "__main__": 7,
}

HEAVY = ("torch", "onnx", "onnxruntime", "tensorrt", "tensorrt_rtx", "transformers", "numpy")


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _layer(module: str) -> int:
    fitting = [key for key in LAYERS if not key or module == key or module.startswith(f"{key}.")]
    return LAYERS[max(fitting, key=len)]


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name.removeprefix("qkexport.") for name in found if name.startswith("qkexport.")}


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_no_module_imports_from_a_layer_above_it(path: Path) -> None:
    module = _name(path)
    if not module:
        return  # the package itself offers every verb, lazily
    above = [name for name in _imports(path) if _layer(name) > _layer(module)]
    assert not above, f"{module} imports {above}"


@pytest.mark.parametrize("module", ["qkexport", "qkexport.cli", "qkexport.spec"])
def test_importing_the_front_door_loads_no_framework(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
