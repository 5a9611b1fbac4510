"""The GPU of this machine as the CUDA driver names it, asked without any CUDA package."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from typing import Final

# Values of CUdevice_attribute in the driver API.
_CAPABILITY_MAJOR: Final = 75
_CAPABILITY_MINOR: Final = 76
_NAME_BYTES: Final = 256


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The first GPU that the driver offers.

    Attributes:
        name: For example `NVIDIA H200`.
        target: Its compute capability, for example `sm_90`.
    """

    name: str
    target: str


@functools.cache
def find_gpu() -> Gpu | None:
    """The GPU that TensorRT would use, or None without a driver or a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.cuDeviceGetName(name, _NAME_BYTES, device)
    major, minor = (
        _attribute(driver, device, number) for number in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR)
    )
    return Gpu(name.value.decode(), f"sm_{major}{minor}")


def _attribute(driver: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
