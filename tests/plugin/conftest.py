"""The plugin tests run where the host and the emulated plugin were built."""

from __future__ import annotations

import pytest

from qkexport.native import find_library
from qkexport.run.plugin_attention import EMULATED_PLUGIN_LIBRARY
from qkexport.run.plugin_host import HOST_LIBRARY


@pytest.fixture(autouse=True)
def _built() -> None:
    missing = [name for name in (HOST_LIBRARY, EMULATED_PLUGIN_LIBRARY) if not find_library(name)]
    if missing:
        pytest.skip(f"not built: {', '.join(missing)} (QKEXPORT_BUILD_EMULATION=ON)")
