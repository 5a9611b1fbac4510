"""The plugin library in a builder's registry, TensorRT-RTX's own for want of the full one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from engine_models import needs_rtx

from qkexport.engine.bindings import Flavour, load_bindings
from qkexport.engine.logger import listening, shared_logger
from qkexport.engine.plugin_library import load_plugin_library
from qkexport.errors import BuildError
from qkexport.native import find_library

pytestmark = needs_rtx

EMULATED: Final = "libqkexport_trt_emulated.so"


@pytest.mark.parametrize("name", ["/lib/x86_64-linux-gnu/libm.so.6", "/nowhere/plugin.so"])
def test_a_library_without_the_plugin_is_refused(name: str) -> None:
    bindings = load_bindings(Flavour.TENSORRT_RTX)
    with listening():
        builder = bindings.Builder(shared_logger(bindings))
        with pytest.raises(BuildError, match="must register QKNormAttention") as caught:
            load_plugin_library(bindings, builder, Path(name))
    assert "ldd" in str(caught.value)


LOAD: Final = """
import sys
from pathlib import Path
import tensorrt_rtx
from qkexport.engine.logger import shared_logger
from qkexport.engine.plugin_library import load_plugin_library
from qkexport.engine.plugin_lookup import plugin_creators
builder = tensorrt_rtx.Builder(shared_logger(tensorrt_rtx))
load_plugin_library(tensorrt_rtx, builder, Path(sys.argv[1]))
registries = (builder.get_plugin_registry(), tensorrt_rtx.get_plugin_registry())
(creator,) = next(filter(None, map(plugin_creators, registries)))
print(creator.name, creator.plugin_version, repr(creator.plugin_namespace))
"""


def test_the_plugin_is_in_the_registry_once_its_library_is_loaded() -> None:
    library = find_library(EMULATED) or find_library("libqkexport_trt.so")
    if library is None:
        pytest.skip(f"{EMULATED} is not built")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(library)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "QKNormAttention 1 ''\n", done.stderr
