"""The few calls of the CUDA runtime that running an engine takes, through cuda-python."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

from qkexport.errors import BackendUnavailableError, UnsupportedModelError

# The module `cuda.bindings.runtime`: it ships no types. Every call returns an error first.
Cudart: TypeAlias = Any


def load_cudart() -> Cudart:
    """Imports cuda-python's runtime bindings.

    Raises:
        BackendUnavailableError: They are not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        message = f"Running an engine needs cuda-python, got {error}."
        raise BackendUnavailableError(message, hint="pip install cuda-python") from error


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a call that must succeed; None where it has none.

    Raises:
        UnsupportedModelError: CUDA reports an error.
    """
    values = checked_all(result)
    return values[0] if values else None


def checked_all(result: tuple[Any, ...]) -> list[Any]:
    """All values of a call that must succeed.

    Raises:
        UnsupportedModelError: CUDA reports an error.
    """
    error, *values = result
    if int(error) != 0:
        raise UnsupportedModelError(f"CUDA must succeed, got {error.name}.")
    return values


class DeviceBuffer:
    """Memory on the GPU that grows when more is asked for, and is never empty.

    TensorRT may hand the address of an empty tensor to a kernel: it must not be null.
    """

    def __init__(self, cudart: Cudart) -> None:
        self._cudart = cudart
        self._capacity = 0
        self.address = 0

    def reserve(self, size: int) -> int:
        """The address of at least `size` bytes; what was in them may be lost."""
        if size > self._capacity or not self.address:
            self.free()
            self._capacity = max(size, 1)
            self.address = int(checked(self._cudart.cudaMalloc(self._capacity)))
        return self.address

    def free(self) -> None:
        """Gives the memory back."""
        if self.address:
            checked(self._cudart.cudaFree(self.address))
            self.address = 0
            self._capacity = 0


def free_device_memory() -> int:
    """Bytes of the GPU's memory that nobody holds.

    Raises:
        BackendUnavailableError: cuda-python is not installed.
        UnsupportedModelError: CUDA reports an error.
    """
    free: int
    free, _ = checked_all(load_cudart().cudaMemGetInfo())
    return free
