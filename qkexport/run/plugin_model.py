"""Runs an .onnx file with its QKNormAttention nodes on the TensorRT plugin, without TensorRT.

ONNX Runtime runs the graph; `libqkexport_ort_plugin.so` hands each attention to the plugin host,
which drives the emulated build of the plugin on the CPU.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

import torch

from qkexport.errors import BackendUnavailableError, UnsupportedModelError
from qkexport.native import find_library
from qkexport.run.ort_runner import OrtRunner, session_options
from qkexport.run.plugin_attention import plugin_library_path
from qkexport.run.runner import Tensors

PLUGIN: Final = "plugin"
ORT_PLUGIN_LIBRARY: Final = "libqkexport_ort_plugin.so"


class PluginModelRunner(OrtRunner):
    """A session whose attentions run on the emulated plugin; see `Runner`.

    Args:
        path: The model; external data is found beside it.

    Raises:
        BackendUnavailableError: ONNX Runtime, the plugin or its operator library is not there.
        UnsupportedModelError: ONNX Runtime or the plugin refuses the model.
    """

    def __init__(self, path: Path) -> None:
        plugin = plugin_library_path("cpu")
        library = find_library(ORT_PLUGIN_LIBRARY)
        if library is None:
            message = f"Backend {PLUGIN} must be built, got no {ORT_PLUGIN_LIBRARY}."
            hint = "pip install . --config-settings=cmake.define.QKEXPORT_BUILD_EMULATION=ON"
            raise BackendUnavailableError(message, hint=hint)
        options = session_options(PLUGIN)
        options.register_custom_ops_library(str(library))
        self._library = ctypes.CDLL(str(library))
        self._library.qkexport_ort_plugin_use.argtypes = (ctypes.c_char_p,)
        self._library.qkexport_ort_plugin_calls.restype = ctypes.c_int64
        self._library.qkexport_ort_plugin_use(str(plugin).encode())
        super().__init__(path, PLUGIN, options)
        self.notes = (*self.notes, f"attentions on {plugin.name}: the CUDA kernels, emulated")

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Evaluates the model; see `Runner.run`.

        Raises:
            UnsupportedModelError: The model ran without an attention on the plugin.
        """
        before = self._library.qkexport_ort_plugin_calls()
        results = super().run(inputs)
        if self._library.qkexport_ort_plugin_calls() == before:
            raise UnsupportedModelError(
                "Model must have attentions that run on the plugin, got none."
            )
        return results
