"""One QKNormAttention on the TensorRT plugin, driven by the plugin host.

`libqkexport_trt.so` runs on CUDA tensors, its emulated build on CPU tensors; the plugin's code is
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from qkexport.errors import BackendUnavailableError
from qkexport.native import find_library
from qkexport.run.plugin_host import (
    PluginContext,
    PluginEngine,
    PluginInput,
    open_plugin_library,
)
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES
from qkexport.spec import OP_TYPE, AttentionSpec

PLUGIN_LIBRARY: Final = "libqkexport_trt.so"
EMULATED_PLUGIN_LIBRARY: Final = "libqkexport_trt_emulated.so"

_ALIGNMENT: Final = 256  # of the workspace, as cudaMalloc aligns
_DTYPES: Final = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.bool: "bool",
    torch.int64: "int64",
}
_TORCH_DTYPES: Final = {name: dtype for dtype, name in _DTYPES.items()}


def plugin_library_path(device: str = "cpu") -> Path:
    """The plugin for a device: the emulated build for `cpu`, the real one for `cuda`.

    Raises:
        BackendUnavailableError: It was not built.
    """
    name = EMULATED_PLUGIN_LIBRARY if device == "cpu" else PLUGIN_LIBRARY
    path = find_library(name)
    if path is None:
        option = "QKEXPORT_BUILD_EMULATION=ON" if device == "cpu" else "QKEXPORT_BUILD_CUDA=ON"
        message = f"The TensorRT plugin for {device} must be built, got no {name}."
        hint = f"pip install . --config-settings=cmake.define.{option}"
        raise BackendUnavailableError(message, hint=hint)
    return path


class PluginRunner:
    """Runs attentions of one spec on the TensorRT plugin.

    Args:
        spec: The attributes.
        inputs: Type and profile of every input that is passed, by the operator's names.
        outputs: `("output",)`, or all three names.
        library: The plugin library; default: the one of `device`.
        device: `cpu` for the emulated build, else a CUDA device.

    Raises:
        BackendUnavailableError: The host or the plugin library is missing.
        PluginError: The plugin refuses the spec, the types or the profile.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        inputs: Mapping[str, PluginInput],
        outputs: tuple[str, ...] = ("output",),
        *,
        library: Path | None = None,
        device: str = "cpu",
    ) -> None:
        self.device = device
        self.roles = tuple(name for name in INPUT_NAMES if name in inputs)
        self.outputs = outputs
        attributes = spec.to_attributes(
            input_roles=",".join(self.roles), output_roles=",".join(outputs)
        )
        host = open_plugin_library(library or plugin_library_path(device))
        profile = [inputs[name] for name in self.roles]
        self.engine: PluginEngine = host.build(OP_TYPE, attributes, profile)
        self._context: PluginContext = self.engine.attach()

    @classmethod
    def for_tensors(
        cls,
        spec: AttentionSpec,
        inputs: Mapping[str, torch.Tensor],
        outputs: tuple[str, ...] = ("output",),
        *,
        library: Path | None = None,
    ) -> PluginRunner:
        """A runner for inputs of exactly these shapes."""
        fixed = {
            name: PluginInput.fixed(_DTYPES[tensor.dtype], tensor.shape)
            for name, tensor in inputs.items()
        }
        device = str(inputs["query"].device.type)
        return cls(spec, fixed, outputs, library=library, device=device)

    def run(
        self, inputs: Mapping[str, torch.Tensor], *, in_place: bool = False
    ) -> dict[str, torch.Tensor]:
        """Computes one attention.

        Args:
            inputs: Tensors on the runner's device, within the profile.
            in_place: As TensorRT does where a builder lets plugins alias: an output that may share
                the memory of an input gets that memory, here a copy of the input's.

        Returns:
            The outputs by name. What the plugin leaves unwritten is NaN.

        Raises:
            PluginError: The plugin refuses the shapes or fails.
        """
        tensors = [inputs[name].contiguous() for name in self.roles]
        shapes = self._context.set_shapes([tensor.shape for tensor in tensors])
        results = [
            torch.full(shape, torch.nan, dtype=_TORCH_DTYPES[dtype], device=self.device)
            for shape, dtype in zip(shapes, self.engine.output_dtypes, strict=True)
        ]
        for output, source in enumerate(self.engine.aliased_inputs):
            if in_place and source >= 0:
                results[output] = tensors[source] = tensors[source].clone()
        workspace = _aligned_workspace(self.engine.workspace_size, self.device)
        stream = 0
        if self.device != "cpu":
            stream = torch.cuda.current_stream(self.device).cuda_stream
        self._context.enqueue(
            _addresses(tensors), _addresses(results), workspace.data_ptr(), stream
        )
        return dict(zip(OUTPUT_NAMES, results, strict=False))


def _addresses(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Null for empty tensors, as TensorRT may pass them."""
    return [tensor.data_ptr() if tensor.numel() else 0 for tensor in tensors]


def _aligned_workspace(size: int, device: str) -> torch.Tensor:
    """`size` bytes of 0xFF, which reads as NaN, at an aligned address."""
    memory = torch.full((size + _ALIGNMENT,), 255, dtype=torch.uint8, device=device)
    return memory[-memory.data_ptr() % _ALIGNMENT :]
