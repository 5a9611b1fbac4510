"""The plugin and its host compile without a warning, against every set of headers at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tensorrt_stubs import REPOSITORY, unpack_wheel

PLUGINS = REPOSITORY / "plugins"
SOURCES = [
    *sorted((PLUGINS / "tensorrt").glob("*.cc")),
    *(PLUGINS / "host" / f"{name}.cc" for name in ("engine", "expressions", "plugin_library")),
    *(PLUGINS / "host" / f"{name}.cc" for name in ("qkexport_host", "saved_fields")),
]


@pytest.fixture(autouse=True)
def _built() -> None:
    """Nothing built is needed here."""


def check(headers: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler is not None, "g++ is needed to install the package"
    system = [headers, PLUGINS / "tensorrt" / "without_cuda"]
    own = [PLUGINS / "include", PLUGINS / "tensorrt", PLUGINS / "host"]
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wno-deprecated-declarations"]
    command += [f"-isystem{folder}" for folder in system] + [f"-I{folder}" for folder in own]
    done = subprocess.run([*command, *map(str, SOURCES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def folder_of_headers(root: Path) -> Path:
    return next(path.parent for path in sorted(root.rglob("NvInferRuntime.h")))


@pytest.mark.nightly
def test_headers_of_the_wheel_that_is_pinned(tmp_path: Path) -> None:
    check(folder_of_headers(unpack_wheel("kernel-lens==2.0.1", tmp_path)))


def test_headers_of_the_tensorrt_that_the_environment_names() -> None:
    root = os.environ.get("TENSORRT_ROOT")
    if root is None:
        pytest.skip("TENSORRT_ROOT names no TensorRT")
    check(folder_of_headers(Path(root)))
