"""Export PyTorch models with QK-norm attention to ONNX Runtime and TensorRT, with proof.

The verbs of the command line are functions here: `qkexport.convert`, `qkexport.inspect`. They are
imported when they are first used, so that `import qkexport` loads no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from qkexport._version import __version__

if TYPE_CHECKING:
    from qkexport.conversion import ConvertResult, convert
    from qkexport.engine import BuildOptions, BuildResult, build
    from qkexport.inspection import InspectResult, inspect

__all__ = [
    "BuildOptions",
    "BuildResult",
    "ConvertResult",
    "InspectResult",
    "__version__",
    "build",
    "convert",
    "inspect",
]

_HOMES: Final = {
    "BuildOptions": "qkexport.engine",
    "BuildResult": "qkexport.engine",
    "ConvertResult": "qkexport.conversion",
    "InspectResult": "qkexport.inspection",
    "build": "qkexport.engine",
    "convert": "qkexport.conversion",
    "inspect": "qkexport.inspection",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
