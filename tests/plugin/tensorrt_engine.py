"""Engines of models with the plugin, built and run through TensorRT's own Python interface.

Nothing of qkexport's build stands between: these are the calls that a user would write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tensorrt as trt
import torch

from qkexport.engine.compile import sizes
from qkexport.engine.plugin_library import find_plugin_library
from qkexport.run.cuda_runtime import DeviceBuffer, checked, load_cudart

Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]

LOGGER = trt.Logger(trt.Logger.WARNING)
DTYPES = {
    trt.DataType.FLOAT: torch.float32,
    trt.DataType.HALF: torch.float16,
    trt.DataType.BF16: torch.bfloat16,
    trt.DataType.INT64: torch.int64,
    trt.DataType.BOOL: torch.bool,
}


def parse(model: Path) -> tuple[trt.Builder, trt.INetworkDefinition]:
    """A network out of a fused file, with the plugin library loaded."""
    builder = trt.Builder(LOGGER)
    builder.get_plugin_registry().load_library(str(find_plugin_library()))
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    network = builder.create_network(1 << int(flag))
    parser = trt.OnnxParser(network, LOGGER)
    if not parser.parse_from_file(str(model)):
        errors = (parser.get_error(index).desc() for index in range(parser.num_errors))
        raise AssertionError("\n".join(errors))
    return builder, network


def count_plugins(network: trt.INetworkDefinition) -> int:
    """Plugin layers of a parsed network."""
    layers = (network.get_layer(index) for index in range(network.num_layers))
    return sum(layer.type == trt.LayerType.PLUGIN_V3 for layer in layers)


def build(
    model: Path,
    profiles: Sequence[Shapes] = (),
    *,
    flags: Sequence[trt.BuilderFlag] = (),
    aliased: bool = False,
) -> bytes:
    """An engine of a fused file.

    Args:
        model: The file.
        profiles: Smallest, best and largest shape of every input whose shape is not fixed.
        flags: Of the builder.
        aliased: Plugins may write outputs where an input stands.
    """
    builder, network = parse(model)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    for flag in flags:
        config.set_flag(flag)
    if aliased:
        config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    for shapes in profiles:
        profile = builder.create_optimization_profile()
        for name, (smallest, best, largest) in shapes.items():
            profile.set_shape(name, smallest, best, largest)
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    return bytes(memoryview(plan))


def layers_of(engine: trt.ICudaEngine) -> list[dict[str, Any]]:
    """What the inspector says of each layer."""
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    found: list[dict[str, Any]] = json.loads(text)["Layers"]
    return found


class Engine:
    """A loaded engine with its contexts, on a stream of its own."""

    def __init__(self, plan: bytes) -> None:
        self._cudart = load_cudart()
        self._runtime = trt.Runtime(LOGGER)
        self._runtime.get_plugin_registry().load_library(str(find_plugin_library()))
        self.engine = self._runtime.deserialize_cuda_engine(plan)
        assert self.engine is not None
        self._stream = checked(self._cudart.cudaStreamCreate())
        self._buffers: list[DeviceBuffer] = []
        self._contexts: dict[int, trt.IExecutionContext] = {}

    def _context(self, profile: int) -> trt.IExecutionContext:
        if profile not in self._contexts:
            context = self.engine.create_execution_context()
            assert context is not None
            context.set_optimization_profile_async(profile, int(self._stream))
            self._contexts[profile] = context
        return self._contexts[profile]

    def run(
        self,
        inputs: Mapping[str, torch.Tensor],
        *,
        profile: int = 0,
        shared: Mapping[str, str] | None = None,
    ) -> dict[str, torch.Tensor]:
        """The outputs on the CPU.

        Args:
            inputs: Tensors on the CPU.
            profile: The optimization profile that they lie in.
            shared: Outputs that are bound to the memory of an input.
        """
        context = self._context(profile)
        addresses = {name: self._upload(tensor) for name, tensor in inputs.items()}
        for name, tensor in inputs.items():
            context.set_input_shape(name, tuple(tensor.shape))
            context.set_tensor_address(name, addresses[name])
        outputs = self._outputs(context)
        for name, tensor in outputs.items():
            source = (shared or {}).get(name)
            addresses[name] = self._reserve(tensor) if source is None else addresses[source]
            context.set_tensor_address(name, addresses[name])
        assert context.execute_async_v3(int(self._stream))
        for name, tensor in outputs.items():
            self._copy(tensor.data_ptr(), addresses[name], tensor.nbytes, to_host=True)
        checked(self._cudart.cudaStreamSynchronize(self._stream))
        return outputs

    def _outputs(self, context: trt.IExecutionContext) -> dict[str, torch.Tensor]:
        names = (self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors))
        found = {}
        for name in names:
            if self.engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
                shape = sizes(context.get_tensor_shape(name))
                found[name] = torch.empty(shape, dtype=DTYPES[self.engine.get_tensor_dtype(name)])
        return found

    def _reserve(self, tensor: torch.Tensor) -> int:
        self._buffers.append(DeviceBuffer(self._cudart))
        return self._buffers[-1].reserve(tensor.nbytes)

    def _upload(self, tensor: torch.Tensor) -> int:
        tensor = tensor.contiguous()
        address = self._reserve(tensor)
        self._copy(address, tensor.data_ptr(), tensor.nbytes, to_host=False)
        return address

    def _copy(self, target: int, source: int, size: int, *, to_host: bool) -> None:
        kinds = self._cudart.cudaMemcpyKind
        kind = kinds.cudaMemcpyDeviceToHost if to_host else kinds.cudaMemcpyHostToDevice
        if size:
            checked(self._cudart.cudaMemcpy(target, source, size, kind))

    def refit(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replaces named weights."""
        refitter = trt.Refitter(self.engine, LOGGER)
        for name, tensor in weights.items():
            dtype = next(kind for kind, known in DTYPES.items() if known is tensor.dtype)
            assert refitter.set_named_weights(
                name, trt.Weights(dtype, tensor.data_ptr(), tensor.numel())
            )
        assert refitter.refit_cuda_engine()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.clear()
        for buffer in self._buffers:
            buffer.free()
        checked(self._cudart.cudaStreamDestroy(self._stream))
