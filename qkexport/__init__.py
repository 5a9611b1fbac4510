"""Export PyTorch models with QK-norm attention to ONNX Runtime and TensorRT, with proof.

The verbs of the command line are functions here: `qkexport.convert`, `qkexport.parity`. They are
imported when they are first used, so that `import qkexport` loads no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from qkexport._version import __version__

if TYPE_CHECKING:
    from qkexport.benchmark.bench import BenchResult, bench
    from qkexport.conversion import ConvertResult, convert
    from qkexport.diagnosis.doctor import DoctorReport, doctor
    from qkexport.engine import BuildOptions, BuildResult, build
    from qkexport.errors import QkexportError
    from qkexport.input_options import DynamicDim, InputSpec
    from qkexport.inspection import InspectResult, inspect
    from qkexport.native import ort_library_path, register_ort
    from qkexport.proof.assertion import assert_parity
    from qkexport.proof.parity import ParityResult, ParitySettings, parity

__all__ = [
    "BenchResult",
    "BuildOptions",
    "BuildResult",
    "ConvertResult",
    "DoctorReport",
    "DynamicDim",
    "InputSpec",
    "InspectResult",
    "ParityResult",
    "ParitySettings",
    "QkexportError",
    "__version__",
    "assert_parity",
    "bench",
    "build",
    "convert",
    "doctor",
    "inspect",
    "ort_library_path",
    "parity",
    "register_ort",
]

_HOMES: Final = {
    "BenchResult": "qkexport.benchmark.bench",
    "BuildOptions": "qkexport.engine",
    "BuildResult": "qkexport.engine",
    "ConvertResult": "qkexport.conversion",
    "DoctorReport": "qkexport.diagnosis.doctor",
    "DynamicDim": "qkexport.input_options",
    "InputSpec": "qkexport.input_options",
    "InspectResult": "qkexport.inspection",
    "ParityResult": "qkexport.proof.parity",
    "ParitySettings": "qkexport.proof.parity",
    "QkexportError": "qkexport.errors",
    "assert_parity": "qkexport.proof.assertion",
    "bench": "qkexport.benchmark.bench",
    "build": "qkexport.engine",
    "convert": "qkexport.conversion",
    "doctor": "qkexport.diagnosis.doctor",
    "inspect": "qkexport.inspection",
    "ort_library_path": "qkexport.native",
    "parity": "qkexport.proof.parity",
    "register_ort": "qkexport.native",
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
