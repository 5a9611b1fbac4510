"""The few calls of a CUDA runtime that driving a plugin takes, from any libcudart."""

from __future__ import annotations

import ctypes

import torch

_TO_DEVICE, _TO_HOST = 1, 2


class Cudart:
    """A CUDA runtime and the memory that was taken from it; leaving it frees the memory."""

    def __init__(self, path: str) -> None:
        self._c = ctypes.CDLL(path)
        self._c.cudaGetErrorString.restype = ctypes.c_char_p
        self._taken: list[ctypes.c_void_p] = []

    def _checked(self, status: int) -> None:
        if status:
            raise RuntimeError(self._c.cudaGetErrorString(status).decode())

    def allocate(self, size: int) -> int:
        """The address of exactly `size` bytes; 0 for none, as TensorRT may pass it."""
        if size == 0:
            return 0
        memory = ctypes.c_void_p()
        self._checked(self._c.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(size)))
        self._taken.append(memory)
        assert memory.value is not None
        return memory.value

    def upload(self, tensor: torch.Tensor) -> int:
        """The address of a copy of a contiguous tensor."""
        address = self.allocate(tensor.nbytes)
        self._copy(address, tensor.data_ptr(), tensor.nbytes, _TO_DEVICE)
        return address

    def download(self, address: int, tensor: torch.Tensor) -> None:
        """Fills a contiguous tensor."""
        self._copy(tensor.data_ptr(), address, tensor.nbytes, _TO_HOST)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        if size:
            pointers = ctypes.c_void_p(target), ctypes.c_void_p(source)
            self._checked(self._c.cudaMemcpy(*pointers, ctypes.c_size_t(size), kind))

    def stream(self) -> int:
        """A stream that does not wait for the default one."""
        stream = ctypes.c_void_p()
        self._checked(self._c.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
        return stream.value or 0

    def synchronize(self) -> None:
        """Waits for everything, and raises what went wrong on the way."""
        self._checked(self._c.cudaDeviceSynchronize())
        self._checked(self._c.cudaGetLastError())

    def __enter__(self) -> Cudart:
        return self

    def __exit__(self, *_: object) -> None:
        for memory in self._taken:
            self._c.cudaFree(memory)
        self._taken.clear()
