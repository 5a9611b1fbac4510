"""The CUDA kernels, through the C interface of libqkexport_cuda.so."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Final

from qkexport.errors import BackendUnavailableError
from qkexport.native import find_library
from qkexport.native_params import AttentionParams

CUDA_LIBRARY: Final = "libqkexport_cuda.so"


class CudaLibrary:
    """An opened library; see plugins/include/qkexport/cuda/qkexport_cuda.h.

    Raises:
        BackendUnavailableError: The library is of another version of qkexport.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        params = ctypes.POINTER(AttentionParams)
        self._workspace_size = library.qkexport_attention_cuda_workspace_size
        self._workspace_size.argtypes = (params,)
        self._workspace_size.restype = ctypes.c_size_t
        self._run = library.qkexport_attention_cuda
        self._run.argtypes = (params, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._run.restype = ctypes.c_int
        library.qkexport_attention_params_size.restype = ctypes.c_size_t
        if library.qkexport_attention_params_size() != ctypes.sizeof(AttentionParams):
            message = f"{path.name} must match this version of qkexport, got another struct size."
            raise BackendUnavailableError(message, hint="pip install . with nvcc on the path")

    def workspace_size(self, params: AttentionParams) -> int:
        """Bytes of device memory that `run` needs; 0 also where there is no kernel."""
        return int(self._workspace_size(ctypes.byref(params)))

    def run(
        self, params: AttentionParams, workspace: int, workspace_bytes: int, stream: int
    ) -> int:
        """Enqueues the attention on a stream of the current device.

        Args:
            params: All of its pointers on that device.
            workspace: Address of the workspace, aligned to 256 bytes.
            workspace_bytes: Its size.
            stream: A cudaStream_t.

        Returns:
            A status, 0 when good.
        """
        return int(self._run(ctypes.byref(params), workspace, workspace_bytes, stream))


@functools.cache
def _loaded(path: Path) -> CudaLibrary:
    return CudaLibrary(path)


def load_cuda_library() -> CudaLibrary | None:
    """The CUDA kernels' C interface, or None where it was not built."""
    path = find_library(CUDA_LIBRARY)
    return None if path is None else _loaded(path)
