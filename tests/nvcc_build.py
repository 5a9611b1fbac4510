"""What nvcc built before the tests began: `make test-cuda` fills a folder and names it to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from run_command import run_command

from qkexport.native import find_library

BUILD_VARIABLE: Final = "QKEXPORT_CUDA_BUILD"


def nvcc_build() -> Path:
    """The build folder of CMake that the environment names; skips where it names none."""
    folder = os.environ.get(BUILD_VARIABLE)
    if not folder:
        pytest.skip(f"{BUILD_VARIABLE} names no build folder (make test-cuda, needs nvcc)")
    return Path(folder)


def nvcc_library(name: str) -> Path:
    """A library in that folder, or else the package's own; skips where nvcc built neither."""
    if not os.environ.get(BUILD_VARIABLE):
        installed = find_library(name)
        if installed is not None:
            return installed
    path = nvcc_build() / "lib" / name
    assert path.is_file(), f"{BUILD_VARIABLE} names a folder without lib/{name}"
    return path


def called_of_cuda_runtime(*targets: str) -> set[str]:
    """The functions of the CUDA runtime that the objects of these targets call.

    The runtime itself is linked in statically, and calls more than it is asked for.
    """
    folders = [f"*/CMakeFiles/{target}.dir/**/*.o" for target in targets]
    objects = [path for pattern in folders for path in nvcc_build().glob(pattern)]
    assert objects
    symbols = run_command("nm", "--undefined-only", *objects).split()
    return {name for name in symbols if name.startswith("cuda")}
