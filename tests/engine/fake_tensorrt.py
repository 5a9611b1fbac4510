"""A full TensorRT that only takes notes, for what is told to it where it cannot be installed.

Every name and argument that it answers to is one that the contract tests hold to NVIDIA's own
bindings.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx


class Flags(enum.IntEnum):
    """Of `BuilderFlag`."""

    REFIT = 0
    STRIP_PLAN = 1
    REFIT_IDENTICAL = 2
    VERSION_COMPATIBLE = 3


class FakeTensorRt:
    """The module; what was done with it is in its attributes."""

    __name__ = "fake_tensorrt"
    __version__ = "11.4.0.106"

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.parsed: onnx.ModelProto | None = None
        self.config: FakeConfig | None = None
        self.timings = b""
        self.layers: list[dict[str, Any]] = []
        self.BuilderFlag = Flags
        self.ILogger = self.IProgressMonitor = self.IStreamWriter = object
        self.LayerInformationFormat = SimpleNamespace(JSON="JSON")
        self.LayerType = SimpleNamespace(ATTENTION_INPUT="ATTENTION_INPUT")
        self.MemoryPoolType = SimpleNamespace(WORKSPACE="WORKSPACE")
        self.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
        self.ProfilingVerbosity = SimpleNamespace(DETAILED="DETAILED")

    def get_plugin_registry(self) -> Any:
        creator = SimpleNamespace(name="QKNormAttention", plugin_version="1", plugin_namespace="")
        known = [creator] if self.loaded else []

        def load_library(path: str) -> object:
            self.loaded.append(path)
            return object()

        return SimpleNamespace(all_creators=known, load_library=load_library)

    def Builder(self, logger: object) -> FakeBuilder:  # noqa: N802
        return FakeBuilder(self)

    def OnnxParser(self, network: Any, logger: object) -> Any:  # noqa: N802
        def parse_from_file(path: str) -> bool:
            self.parsed = onnx.load(path, load_external_data=False)
            network.read(self.parsed)
            return True

        return SimpleNamespace(parse_from_file=parse_from_file, num_errors=0)

    def Runtime(self, logger: object) -> Any:  # noqa: N802
        inspector = SimpleNamespace(
            get_engine_information=lambda kind: json.dumps({"Layers": self.layers})
        )
        engine = SimpleNamespace(create_engine_inspector=lambda: inspector)
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)


class FakeNetwork:
    """The inputs and outputs of what was parsed."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.num_layers = 0

    def read(self, model: onnx.ModelProto) -> None:
        self.inputs = [_tensor(value) for value in model.graph.input]
        self.outputs = [_tensor(value) for value in model.graph.output]
        self.num_layers = len(model.graph.node)

    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))

    def get_input(self, place: int) -> Any:
        return self.inputs[place]

    def get_output(self, place: int) -> Any:
        return self.outputs[place]

    def get_layer(self, place: int) -> Any:
        return SimpleNamespace(type="PLUGIN_V3")


def _tensor(value: onnx.ValueInfoProto) -> Any:
    shape = tuple(dim.dim_value or -1 for dim in value.type.tensor_type.shape.dim)
    return SimpleNamespace(
        name=value.name, shape=shape, dtype=SimpleNamespace(name="HALF"), is_shape_tensor=False
    )


class FakeConfig:
    """What the builder was told."""

    def __init__(self, trt: FakeTensorRt) -> None:
        self.trt = trt
        self.flags: list[Flags] = []
        self.limits: dict[str, int] = {}
        self.profiles: list[dict[str, Any]] = []
        self.given_timings = b""
        self.builder_optimization_level: int | None = None

    def set_flag(self, flag: Flags) -> None:
        self.flags.append(flag)

    def set_memory_pool_limit(self, pool: str, size: int) -> None:
        self.limits[pool] = size

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile.shapes)
        return len(self.profiles) - 1

    def create_timing_cache(self, timings: bytes) -> bytes:
        return timings

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.given_timings = cache
        return True

    def get_timing_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: self.given_timings + self.trt.timings)


class FakeBuilder:
    """Answers with an engine that is a text."""

    def __init__(self, trt: FakeTensorRt) -> None:
        self.trt = trt

    def get_plugin_registry(self) -> Any:
        return self.trt.get_plugin_registry()

    def create_network(self, flags: int) -> FakeNetwork:
        assert flags == 1 << self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return FakeNetwork()

    def create_builder_config(self) -> FakeConfig:
        self.trt.config = FakeConfig(self.trt)
        return self.trt.config

    def create_optimization_profile(self) -> Any:
        shapes: dict[str, Any] = {}

        def set_shape(name: str, *sizes: tuple[int, ...]) -> None:
            shapes[name] = sizes

        return SimpleNamespace(shapes=shapes, set_shape=set_shape)

    def build_serialized_network_to_stream(
        self, network: FakeNetwork, config: FakeConfig, writer: Any
    ) -> bool:
        for piece in (b"an engine ", b"of the full TensorRT"):
            writer.write(piece)
        return True


def plugin_layer(name: str) -> dict[str, Any]:
    """A layer as the inspector tells of it."""
    return {"Name": name, "LayerType": "PluginV3", "PluginType": "QKNormAttention"}


def library(folder: Path) -> Path:
    """A file in the place of the plugin library."""
    path = folder / "libqkexport_trt.so"
    path.write_bytes(b"plugin")
    return path
