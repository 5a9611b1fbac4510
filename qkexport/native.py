"""Finds and loads the native libraries that the build installs into `qkexport/lib`.

`QKEXPORT_LIBRARY_DIR` names another folder to look in first, such as a CMake build folder.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.errors import BackendUnavailableError

if TYPE_CHECKING:
    import onnxruntime as ort

    from qkexport.native_params import AttentionParams

LIBRARY_DIR_VARIABLE: Final = "QKEXPORT_LIBRARY_DIR"
ISA_VARIABLE: Final = "QKEXPORT_CPU_ISA"
ORT_LIBRARY: Final = "libqkexport_ort.so"
CPU_LIBRARY: Final = "libqkexport_cpu.so"
_INSTALL_HINT: Final = "pip install . (needs CMake and a C++17 compiler)"


def find_library(file_name: str) -> Path | None:
    """The path of a native library, or None where it was not built.

    Args:
        file_name: Such as `libqkexport_ort.so`.
    """
    override = os.environ.get(LIBRARY_DIR_VARIABLE)
    folders = [Path(override)] if override else []
    folders.append(Path(__file__).parent / "lib")
    paths = (folder / file_name for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def ort_library_path() -> Path:
    """The custom operator library for ONNX Runtime.

    Returns:
        What `onnxruntime.SessionOptions.register_custom_ops_library` takes.

    Raises:
        BackendUnavailableError: The library was not built.

    Example:
        >>> import qkexport
        >>> qkexport.ort_library_path().name
        'libqkexport_ort.so'
    """
    path = find_library(ORT_LIBRARY)
    if path is None:
        message = f"ONNX Runtime's operator library must be built, got no {ORT_LIBRARY}."
        note = f"looked in {LIBRARY_DIR_VARIABLE} and {Path(__file__).parent / 'lib'}."
        raise BackendUnavailableError(message, note=note, hint=_INSTALL_HINT)
    return path


def register_ort(session_options: ort.SessionOptions) -> None:
    """Lets sessions with these options run `qkexport::QKNormAttention` on the native kernel.

    Args:
        session_options: Options of the session to be opened.

    Raises:
        BackendUnavailableError: The library was not built, or ONNX Runtime is too old for it.

    Example:
        >>> import onnxruntime, torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> source = QKNormAttention(64, num_heads=4), (torch.randn(2, 8, 64),)
        >>> _ = qkexport.convert(source, "attention.onnx", form="fused", verify=False)
        >>> options = onnxruntime.SessionOptions()
        >>> qkexport.register_ort(options)
        >>> session = onnxruntime.InferenceSession("attention.onnx", options)
        >>> (output,) = session.run(None, {session.get_inputs()[0].name: source[1][0].numpy()})
        >>> output.shape
        (2, 8, 64)
    """
    path = ort_library_path()
    try:
        session_options.register_custom_ops_library(str(path))
    except Exception as error:
        message = f"ONNX Runtime must load {path.name}, got {error}."
        raise BackendUnavailableError(message, hint="pip install -U onnxruntime") from error


class CpuLibrary:
    """The C interface of libqkexport_cpu.so; see plugins/include/qkexport/cpu/qkexport_cpu.h."""

    def __init__(self, path: Path) -> None:
        from qkexport.native_params import AttentionParams

        self.path = path
        library = ctypes.CDLL(str(path))
        params = ctypes.POINTER(AttentionParams)
        self._workspace_size = library.qkexport_attention_cpu_workspace_size
        self._workspace_size.argtypes = (params, ctypes.c_int)
        self._workspace_size.restype = ctypes.c_size_t
        self._run = library.qkexport_attention_cpu
        self._run.argtypes = (params, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._run.restype = ctypes.c_int
        self._isa = library.qkexport_cpu_isa
        self._isa.restype = ctypes.c_char_p
        self._available = library.qkexport_cpu_available_isas
        self._available.restype = ctypes.c_char_p
        library.qkexport_attention_params_size.restype = ctypes.c_size_t
        size = library.qkexport_attention_params_size()
        if size != ctypes.sizeof(AttentionParams):
            message = f"{path.name} must match this version of qkexport, got another struct size."
            raise BackendUnavailableError(message, hint=_INSTALL_HINT)

    @property
    def isa(self) -> str:
        """The instruction set in use.

        Raises:
            BackendUnavailableError: QKEXPORT_CPU_ISA names one that this processor lacks.
        """
        name = self._isa()
        if name is None:
            value = os.environ.get(ISA_VARIABLE)
            message = f"{ISA_VARIABLE} must name a path this processor has, got {value!r}."
            raise BackendUnavailableError(message, note=f"available: {self.available_isas}.")
        return str(name.decode())

    @property
    def available_isas(self) -> str:
        """The instruction sets that this processor can run, comma-separated."""
        return str(self._available().decode())

    def workspace_size(self, params: AttentionParams, num_threads: int) -> int:
        """Bytes of workspace that `run` needs."""
        return int(self._workspace_size(ctypes.byref(params), num_threads))

    def run(
        self, params: AttentionParams, workspace: int, workspace_bytes: int, num_threads: int
    ) -> int:
        """Computes the attention; returns a status, 0 when good.

        Raises:
            BackendUnavailableError: QKEXPORT_CPU_ISA names a path that this processor lacks.
        """
        status = int(self._run(ctypes.byref(params), workspace, workspace_bytes, num_threads))
        if status < 0:
            _ = self.isa  # raises with the reason
        return status


@functools.cache
def _loaded(path: Path) -> CpuLibrary:
    return CpuLibrary(path)


def load_cpu_library() -> CpuLibrary | None:
    """The CPU kernel's C interface, or None where it was not built."""
    path = find_library(CPU_LIBRARY)
    return None if path is None else _loaded(path)
