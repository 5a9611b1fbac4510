"""A CUDA runtime whose device memory is host memory, and an engine that runs on it.

They answer with what the real ones answer, so that the runner's own logic (names, shapes,
profiles, buffers, graphs) runs where there is no GPU. That the real ones have every class, method
and argument used is the business of the contract tests.
"""

# ruff: noqa: N801, N802, N815  # the names are CUDA's

from __future__ import annotations

import ctypes
import enum
import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

# A name is never used again, as the address of an object can be.
_SERIAL = itertools.count()

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class FakeCudart:
    """`cuda.bindings.runtime` over ctypes; records what was called."""

    total = 1 << 30

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.calls: list[str] = []
        self.recording: list[Callable[[], None]] | None = None
        self.failing: str | None = None

    class cudaMemcpyKind(enum.Enum):
        cudaMemcpyHostToDevice = 1
        cudaMemcpyDeviceToHost = 2

    class cudaStreamCaptureMode(enum.Enum):
        cudaStreamCaptureModeThreadLocal = 1

    class Error(enum.IntEnum):
        """Of `cudaError_t`."""

        cudaSuccess = 0
        cudaErrorMemoryAllocation = 2

    def _answer(self, name: str, *values: Any) -> tuple[Any, ...]:
        self.calls.append(name)
        if name == self.failing:
            return (self.Error.cudaErrorMemoryAllocation, *(None for _ in values))
        return (self.Error.cudaSuccess, *values)

    def cudaMalloc(self, size: int) -> tuple[Any, ...]:
        block = (ctypes.c_char * size)()
        address = ctypes.addressof(block)
        self.memory[address] = block
        return self._answer("cudaMalloc", address)

    def cudaFree(self, address: int) -> tuple[Any, ...]:
        del self.memory[address]
        return self._answer("cudaFree")

    def cudaMemGetInfo(self) -> tuple[Any, ...]:
        taken = sum(len(block) for block in self.memory.values())
        return self._answer("cudaMemGetInfo", self.total - taken, self.total)

    def cudaMemcpyAsync(
        self, target: int, source: int, count: int, kind: cudaMemcpyKind, stream: Any
    ) -> tuple[Any, ...]:
        device = source if kind is self.cudaMemcpyKind.cudaMemcpyDeviceToHost else target
        assert count <= len(self.memory[device])
        ctypes.memmove(target, source, count)
        return self._answer("cudaMemcpyAsync")

    def cudaStreamCreate(self) -> tuple[Any, ...]:
        return self._answer("cudaStreamCreate", 7)

    def cudaStreamSynchronize(self, stream: Any) -> tuple[Any, ...]:
        return self._answer("cudaStreamSynchronize")

    def cudaStreamDestroy(self, stream: Any) -> tuple[Any, ...]:
        return self._answer("cudaStreamDestroy")

    def cudaStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[Any, ...]:
        self.recording = []
        return self._answer("cudaStreamBeginCapture")

    def cudaStreamEndCapture(self, stream: Any) -> tuple[Any, ...]:
        recorded, self.recording = self.recording, None
        return self._answer("cudaStreamEndCapture", recorded)

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]:
        return self._answer("cudaGraphInstantiate", graph)

    def cudaGraphDestroy(self, graph: Any) -> tuple[Any, ...]:
        return self._answer("cudaGraphDestroy")

    def cudaGraphExecDestroy(self, graph: Any) -> tuple[Any, ...]:
        return self._answer("cudaGraphExecDestroy")

    def cudaGraphLaunch(self, graph: Any, stream: Any) -> tuple[Any, ...]:
        for work in graph:
            work()
        return self._answer("cudaGraphLaunch")


class FakeContext:
    """Copies input x to output y on the fake device, whatever their shapes."""

    def __init__(self, engine: FakeEngine, cudart: FakeCudart) -> None:
        self.engine, self.cudart = engine, cudart
        self.active_optimization_profile = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.profiles_set: list[int] = []

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.active_optimization_profile = profile
        self.profiles_set.append(profile)
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address
        self.addresses[name] = address
        return True

    def infer_shapes(self) -> list[str]:
        return [] if "x" in self.shapes else ["x"]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1,) if self.engine.data_dependent else self.shapes["x"]

    def execute_async_v3(self, stream: int) -> bool:
        if self.engine.failing:
            return False
        count = 2
        for size in self.shapes["x"]:
            count *= size
        source, target = self.addresses["x"], self.addresses["y"]

        def work() -> None:
            ctypes.memmove(target, source, count)

        self.cudart.calls.append("execute")
        if self.cudart.recording is None:
            work()
        else:
            self.cudart.recording.append(work)
        return True


class FakeEngine:
    """x[?, ?, width] float16 -> y of the same shape."""

    num_io_tensors = 2

    def __init__(self, cudart: FakeCudart, profiles: Sequence[Range]) -> None:
        self.profiles = profiles
        self.num_optimization_profiles = len(profiles)
        self.data_dependent = self.failing = False
        self.on_host = ""
        self.context = FakeContext(self, cudart)

    def create_execution_context(self) -> FakeContext:
        return self.context

    def get_tensor_name(self, place: int) -> str:
        return "xy"[place]

    def get_tensor_mode(self, name: str) -> str:
        return {"x": "INPUT", "y": "OUTPUT"}[name]

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name="HALF")

    def get_tensor_location(self, name: str) -> str:
        return "HOST" if self.on_host == name else "DEVICE"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (-1, -1, self.profiles[0][0][-1])

    def get_tensor_profile_shape(self, name: str, profile: int) -> Range:
        return self.profiles[profile]


def fake_bindings(version: str, engine: FakeEngine | None) -> Any:
    """A module of TensorRT whose runtime knows one engine."""

    class Logger:
        pass

    class Runtime:
        def __init__(self, logger: Logger) -> None:
            assert isinstance(logger, Logger)

        def deserialize_cuda_engine(self, data: bytes) -> FakeEngine | None:
            assert data
            return engine

    return SimpleNamespace(
        __name__=f"fake_tensorrt_{next(_SERIAL)}",
        __version__=version,
        ILogger=Logger,
        Runtime=Runtime,
        TensorIOMode=SimpleNamespace(INPUT="INPUT", OUTPUT="OUTPUT"),
        TensorLocation=SimpleNamespace(HOST="HOST", DEVICE="DEVICE"),
    )
