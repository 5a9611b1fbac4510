"""qkexport's TensorRT plugin library: where it is, and how a build comes to know it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.engine.bindings import Bindings
from qkexport.engine.plugin_lookup import plugin_creators
from qkexport.errors import BackendUnavailableError, BuildError
from qkexport.native import find_library
from qkexport.spec import OP_TYPE

if TYPE_CHECKING:
    import tensorrt as trt


LIBRARY: Final = "libqkexport_trt.so"


def find_plugin_library() -> Path:
    """Path of the plugin library.

    Raises:
        BackendUnavailableError: The package was built without it.
    """
    path = find_library(LIBRARY)
    if path is None:
        message = f"Attention as a plugin needs qkexport's TensorRT library, got no {LIBRARY}."
        hint = "pip install . with nvcc on the path, or build with --attention native."
        raise BackendUnavailableError(message, hint=hint)
    return path


def load_plugin_library(bindings: Bindings, builder: trt.Builder, path: Path) -> None:
    """Registers the plugins of a library with a builder.

    Raises:
        BuildError: The library does not load, or does not hold the plugin.
    """
    registry = builder.get_plugin_registry()
    handle = registry.load_library(str(path))
    # The builder's registry falls back to the process's one, where libraries may register.
    known = plugin_creators(registry) or plugin_creators(bindings.get_plugin_registry())
    if handle is None or not known:
        message = f"Plugin library {path.name} must register {OP_TYPE}, got {path}."
        hint = "ldd on the library says what it misses; qkexport doctor says how to build it."
        raise BuildError(message, hint=hint)
