"""Runs a TensorRT engine that `qkexport build` made, on the GPU of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from qkexport.engine.bindings import Flavour, load_bindings
from qkexport.engine.compile import sizes
from qkexport.engine.device import find_gpu
from qkexport.engine.logger import listening, shared_logger
from qkexport.engine.plugin_library import find_plugin_library
from qkexport.engine.verify import verify_engine, verify_files, verify_plugin
from qkexport.errors import BackendUnavailableError, UnsupportedModelError, UsageError
from qkexport.manifest import Manifest
from qkexport.run.cuda_graph import GraphCache
from qkexport.run.cuda_runtime import DeviceBuffer, checked, load_cudart
from qkexport.run.inputs import checked_inputs
from qkexport.run.runner import ClosedOnLeaving, TensorInfo, Tensors

if TYPE_CHECKING:
    import tensorrt as trt

_DTYPES: Final = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "BF16": torch.bfloat16,
    "INT64": torch.int64,
    "INT32": torch.int32,
    "INT8": torch.int8,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
}


class TrtRunner(ClosedOnLeaving):
    """An engine on the GPU; see `Runner`.

    The manifest beside the engine is checked before TensorRT sees the engine.

    Args:
        path: The engine.
        backend: The runtime that is expected, or None for whatever built the engine.
        cuda_graph: Record the kernels of each combination of shapes once and replay them.

    Raises:
        BackendUnavailableError: There is no GPU, TensorRT or cuda-python.
        UsageError: The engine was built by another runtime.
        LoadError: The engine is damaged or was built for another GPU, version or plugin.
        UnsupportedModelError: TensorRT refuses the engine.
    """

    def __init__(self, path: Path, backend: str | None = None, *, cuda_graph: bool = False) -> None:
        self.manifest = manifest = verify_files(path)
        if backend not in (None, manifest.runtime):
            message = f"Engine {path.name} must run on {manifest.runtime}, got {backend}."
            raise UsageError(message, note="another TensorRT cannot load it.")
        self.backend = str(manifest.runtime)
        gpu = find_gpu()
        if gpu is None:
            message = f"Running engine {path.name} needs an NVIDIA GPU and its driver, got none."
            raise BackendUnavailableError(message, hint="run it on a machine with the GPU.")
        bindings = load_bindings(Flavour(manifest.runtime))
        verify_engine(path, bindings, gpu)
        self._cudart = load_cudart()
        self._runtime = bindings.Runtime(shared_logger(bindings))
        _load_plugin(self._runtime, manifest)
        self._engine = _deserialize(self._runtime, path)
        self._context = self._engine.create_execution_context()
        names = [
            self._engine.get_tensor_name(place) for place in range(self._engine.num_io_tensors)
        ]
        infos = {name: _info(self._engine, name) for name in names}
        is_input = {
            name: self._engine.get_tensor_mode(name) == bindings.TensorIOMode.INPUT
            for name in names
        }
        self.inputs = tuple(infos[name] for name in names if is_input[name])
        self.outputs = tuple(infos[name] for name in names if not is_input[name])
        self._on_host = {
            name
            for name in names
            if self._engine.get_tensor_location(name) == bindings.TensorLocation.HOST
        }
        self.notes: tuple[str, ...] = (f"on {gpu.name} ({gpu.target})",)
        self._buffers = {name: DeviceBuffer(self._cudart) for name in names}
        self._stream = checked(self._cudart.cudaStreamCreate())
        self._graphs = GraphCache(self._cudart, self._stream) if cuda_graph else None

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Evaluates the engine; see `Runner.run`."""
        tensors = {
            name: tensor.detach().contiguous()
            for name, tensor in checked_inputs(self.backend, self.inputs, inputs).items()
        }
        self._select_profile(tensors)
        for name, tensor in tensors.items():
            self._context.set_input_shape(name, tuple(tensor.shape))
            if name in self._on_host:  # it decides over shapes, before anything runs on the GPU
                self._context.set_tensor_address(name, tensor.data_ptr())
                continue
            self._copy(self._reserve(name, tensor), tensor, to_device=True)
        outputs = self._outputs()
        for name, output in outputs.items():
            self._reserve(name, output)
        self._last = tensors  # keeps inputs on the host alive
        self._enqueue(tensors)
        for name, output in outputs.items():
            self._copy(self._buffers[name].address, output, to_device=False)
        checked(self._cudart.cudaStreamSynchronize(self._stream))
        return outputs

    def repeat(self) -> None:
        """Runs once more on the inputs of the last `run`; the outputs stay on the GPU."""
        self._enqueue(self._last)
        checked(self._cudart.cudaStreamSynchronize(self._stream))

    def _select_profile(self, tensors: Tensors) -> None:
        """The first profile that all shapes fit, unless the current one does."""
        current = self._context.active_optimization_profile
        others = range(self._engine.num_optimization_profiles)
        for profile in (current, *others):
            if profile >= 0 and self._fits(profile, tensors):
                if profile != current:
                    stream = int(self._stream)
                    self._context.set_optimization_profile_async(profile, stream)
                return
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        note = "; ".join(self._profile_text(profile) for profile in others)
        message = f"Shapes on {self.backend} must fit a profile of the engine, got {shapes}."
        raise UsageError(message, note=f"the profiles are {note}.", hint="build with --shape.")

    def _fits(self, profile: int, tensors: Tensors) -> bool:
        return all(
            low <= size <= high
            for name, tensor in tensors.items()
            for low, size, high in zip(
                sizes(self._engine.get_tensor_profile_shape(name, profile)[0]),
                tensor.shape,
                sizes(self._engine.get_tensor_profile_shape(name, profile)[2]),
                strict=True,
            )
        )

    def _profile_text(self, profile: int) -> str:
        spans = {
            info.name: self._engine.get_tensor_profile_shape(info.name, profile)
            for info in self.inputs
        }
        return ", ".join(
            f"{name} {list(sizes(span[0]))} to {list(sizes(span[2]))}"
            for name, span in spans.items()
        )

    def _outputs(self) -> dict[str, torch.Tensor]:
        missing = self._context.infer_shapes()
        if missing:
            message = f"Engine on {self.backend} must know its shapes, got none for {missing}."
            raise UnsupportedModelError(message)
        outputs = {}
        for info in self.outputs:
            shape = sizes(self._context.get_tensor_shape(info.name))
            if any(size < 0 for size in shape):
                message = f"Output {info.name} must have a shape known before the run"
                raise UnsupportedModelError(f"{message}, got {list(shape)}.")
            outputs[info.name] = torch.empty(shape, dtype=info.dtype)
        return outputs

    def _reserve(self, name: str, tensor: torch.Tensor) -> int:
        address = self._buffers[name].reserve(tensor.nbytes)
        self._context.set_tensor_address(name, address)
        return address

    def _copy(self, address: int, tensor: torch.Tensor, *, to_device: bool) -> None:
        if not tensor.nbytes:
            return
        kinds = self._cudart.cudaMemcpyKind
        kind = kinds.cudaMemcpyHostToDevice if to_device else kinds.cudaMemcpyDeviceToHost
        ends = (address, tensor.data_ptr()) if to_device else (tensor.data_ptr(), address)
        checked(self._cudart.cudaMemcpyAsync(*ends, tensor.nbytes, kind, self._stream))

    def _enqueue(self, tensors: Tensors) -> None:
        def launch() -> None:
            with listening() as messages:
                if not self._context.execute_async_v3(int(self._stream)):
                    said = messages.errors[-1] if messages.errors else "no message"
                    raise UnsupportedModelError(f"Engine on {self.backend} must run, got {said}.")

        if self._graphs is None:
            launch()
        else:
            addresses = tuple(buffer.address for buffer in self._buffers.values())
            shapes = tuple(tuple(tensor.shape) for tensor in tensors.values())
            self._graphs.launch((addresses, shapes), launch)

    def close(self) -> None:
        """Frees the engine and its memory on the GPU."""
        if self._graphs is not None:
            self._graphs.clear()
        for buffer in self._buffers.values():
            buffer.free()
        checked(self._cudart.cudaStreamDestroy(self._stream))
        del self._context, self._engine, self._runtime


def optimum_inputs(inputs: tuple[TensorInfo, ...], manifest: Manifest) -> dict[str, torch.Tensor]:
    """Inputs of ones in the shapes that an engine's first profile was optimized for."""
    profile = manifest.profiles[0] if manifest.profiles else {}
    shapes = {tensor.name: tensor.shape for tensor in manifest.inputs}
    shapes |= {name: shape[1] for name, shape in profile.items()}
    return {info.name: torch.ones(shapes[info.name], dtype=info.dtype) for info in inputs}


def _load_plugin(runtime: trt.Runtime, manifest: Manifest) -> None:
    if manifest.plugin is None:
        return
    library = find_plugin_library()
    verify_plugin(manifest, library)
    runtime.get_plugin_registry().load_library(str(library))


def _deserialize(runtime: trt.Runtime, path: Path) -> trt.ICudaEngine:
    with listening() as messages:
        engine = runtime.deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        said = messages.errors[-1] if messages.errors else "no message"
        raise UnsupportedModelError(f"Engine {path.name} must be loaded by TensorRT, got {said}.")
    return engine


def _info(engine: trt.ICudaEngine, name: str) -> TensorInfo:
    dtype = engine.get_tensor_dtype(name)
    shape = sizes(engine.get_tensor_shape(name))
    symbols = (size if size >= 0 else f"{name}_{axis}" for axis, size in enumerate(shape))
    return TensorInfo(name, _DTYPES[dtype.name], tuple(symbols))
