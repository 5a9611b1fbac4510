"""Chooses the runner of a backend, or says why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from qkexport.errors import UsageError
from qkexport.names import suggest
from qkexport.run.ort_runner import CUSTOM, STOCK, OrtRunner
from qkexport.run.program import Program
from qkexport.run.runner import Runner
from qkexport.run.torch_runner import TORCH, TorchRunner

BACKENDS: Final = (TORCH, CUSTOM, STOCK, "plugin", "tensorrt", "tensorrt-rtx")
ONNX_BACKENDS: Final = (CUSTOM, STOCK, "plugin", TORCH)
ENGINE_BACKENDS: Final = ("tensorrt", "tensorrt-rtx")


def backends_for(source: Program | Path) -> tuple[str, ...]:
    """Backends that could run a source, the most telling first."""
    if isinstance(source, Program):
        return (TORCH,)
    return ONNX_BACKENDS if source.suffix == ".onnx" else ENGINE_BACKENDS


def open_runner(source: Program | Path, backend: str) -> Runner:
    """Loads a model on a backend.

    Args:
        source: A PyTorch program, or the path of an .onnx file or an engine.
        backend: One of `BACKENDS`.

    Raises:
        UsageError: The backend is unknown or cannot run this kind of source.
        BackendUnavailableError: The backend is not installed or has no device here.
        UnsupportedModelError: The backend refuses the model.
    """
    if backend not in BACKENDS:
        message = f"Backend must be a known one, got {backend!r}."
        note = f"accepted: {', '.join(BACKENDS)}."
        raise UsageError(message, note=note, hint=suggest(backend, BACKENDS))
    accepted = backends_for(source)
    if backend not in accepted:
        name = source.name if isinstance(source, Path) else "a PyTorch model"
        message = f"Backend {backend} must be able to run its source, got {name}."
        raise UsageError(message, note=f"{name} runs on {', '.join(accepted)}.")
    if isinstance(source, Program):
        return TorchRunner(source)
    if backend == TORCH:
        from qkexport.run.onnx_torch_runner import open_onnx

        return open_onnx(source)
    if backend == "plugin":
        from qkexport.run.plugin_model import PluginModelRunner

        return PluginModelRunner(source)
    if backend in ENGINE_BACKENDS:
        from qkexport.run.tensorrt import TrtRunner

        return TrtRunner(source, backend)
    return OrtRunner(source, backend)
