"""The two flavours of TensorRT behind one vocabulary: the names that this package uses."""

from __future__ import annotations

import enum
import functools
import importlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from qkexport.errors import BackendUnavailableError

if TYPE_CHECKING:
    import tensorrt as trt


class Flavour(enum.StrEnum):
    """Which TensorRT: the full one runs plugins, the RTX one builds ahead of time on a CPU."""

    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt-rtx"

    @property
    def takes_plugins(self) -> bool:
        """TensorRT-RTX ends the process when it is handed a plugin layer."""
        return self is Flavour.TENSORRT

    @property
    def needs_gpu(self) -> bool:
        """The full TensorRT times kernels while it builds, on the GPU it builds for."""
        return self is Flavour.TENSORRT


class Bindings(Protocol):
    """The Python module of one flavour, as far as it is used here.

    Only names that both flavours have are listed; what TensorRT-RTX alone has is in `targets`.
    """

    __name__: str
    __version__: str
    Builder: type[trt.Builder]
    BuilderFlag: type[trt.BuilderFlag]
    DataType: type[trt.DataType]
    IAttentionInputLayer: type[trt.IAttentionInputLayer]
    ICudaEngine: type[trt.ICudaEngine]
    ILogger: type[trt.ILogger]
    IProgressMonitor: type[trt.IProgressMonitor]
    IStreamWriter: type[trt.IStreamWriter]
    LayerType: type[trt.LayerType]
    LayerInformationFormat: type[trt.LayerInformationFormat]
    MemoryPoolType: type[trt.MemoryPoolType]
    NetworkDefinitionCreationFlag: type[trt.NetworkDefinitionCreationFlag]
    OnnxParser: type[trt.OnnxParser]
    ProfilingVerbosity: type[trt.ProfilingVerbosity]
    Runtime: type[trt.Runtime]
    TensorIOMode: type[trt.TensorIOMode]
    TensorLocation: type[trt.TensorLocation]

    def get_plugin_registry(self) -> trt.IPluginRegistry:
        """The registry that all builders and runtimes of the process share."""
        ...


_MODULES: Final = {Flavour.TENSORRT: "tensorrt", Flavour.TENSORRT_RTX: "tensorrt_rtx"}
_EXTRAS: Final = {Flavour.TENSORRT: "tensorrt", Flavour.TENSORRT_RTX: "rtx"}


def load_bindings(flavour: Flavour) -> Bindings:
    """Imports a flavour.

    Raises:
        BackendUnavailableError: It is not installed, or its libraries do not load.
    """
    try:
        return cast(Bindings, importlib.import_module(_MODULES[flavour]))
    except (ImportError, OSError) as error:
        message = f"Runtime {flavour} must be installed, got {_first_line(error)}."
        hint = f"pip install 'qkexport[{_EXTRAS[flavour]}]'"
        raise BackendUnavailableError(message, hint=hint) from error


@functools.cache
def is_installed(flavour: Flavour) -> bool:
    """Whether the flavour imports here; libraries that do not load count as not installed."""
    try:
        load_bindings(flavour)
    except BackendUnavailableError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
