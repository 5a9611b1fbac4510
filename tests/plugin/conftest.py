"""The plugin tests run where the host and the emulated plugin were built."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvcc_build import nvcc_library

from qkexport.native import find_library
from qkexport.run.plugin_attention import EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY
from qkexport.run.plugin_host import HOST_LIBRARY


@pytest.fixture(autouse=True)
def _built() -> None:
    missing = [name for name in (HOST_LIBRARY, EMULATED_PLUGIN_LIBRARY) if not find_library(name)]
    if missing:
        pytest.skip(f"not built: {', '.join(missing)} (QKEXPORT_BUILD_EMULATION=ON)")


@pytest.fixture(params=["emulated", "nvcc"])
def plugin_library(request: pytest.FixtureRequest) -> Path:
    """The plugin over the emulated kernels, then the one that nvcc built."""
    if request.param == "nvcc":
        return nvcc_library(PLUGIN_LIBRARY)
    emulated = find_library(EMULATED_PLUGIN_LIBRARY)
    assert emulated is not None
    return emulated
