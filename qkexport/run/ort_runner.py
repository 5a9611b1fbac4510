"""Runs an .onnx file in ONNX Runtime on the CPU, stock or with qkexport's operator library."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from qkexport.errors import BackendUnavailableError, UnsupportedModelError
from qkexport.onnx_outline import load_outline
from qkexport.run.emulate_bfloat16 import emulate_bfloat16, needs_emulation
from qkexport.run.free_memory import release_free_memory, returning_freed_blocks
from qkexport.run.inputs import checked_inputs
from qkexport.run.onnx_types import ONNX_DTYPES, torch_dtype
from qkexport.run.runner import ClosedOnLeaving, TensorInfo, Tensors
from qkexport.spec import OP_DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir
    import onnxruntime as ort

STOCK: Final = "ort-stock"
CUSTOM: Final = "ort"
EMULATED: Final = "bf16 emulated: float32 arithmetic, every value rounded to bfloat16"


class OrtRunner(ClosedOnLeaving):
    """A session of ONNX Runtime's CPU provider; see `Runner`.

    Args:
        path: The model; external data is found beside it.
        backend: `ort-stock` runs the file as it is, `ort` registers qkexport's operator library.
        options: Options of the session; default: those of the backend.

    Raises:
        BackendUnavailableError: ONNX Runtime or the library is not there.
        UnsupportedModelError: ONNX Runtime refuses the model.
    """

    def __init__(
        self, path: Path, backend: str = STOCK, options: ort.SessionOptions | None = None
    ) -> None:
        self.backend = backend
        self.notes: tuple[str, ...] = ()
        options = options or session_options(backend)
        with tempfile.TemporaryDirectory(prefix="qkexport-") as folder:
            model = _emulated(path, backend)
            if model is not None:
                self.notes = (EMULATED,)
                path = _save(model, Path(folder))
            with returning_freed_blocks():
                self._session = _open(path, options, backend)
        self.inputs = tuple(map(_info, self._session.get_inputs()))
        self.outputs = tuple(map(_info, self._session.get_outputs()))

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Evaluates the model; see `Runner.run`."""
        checked = checked_inputs(self.backend, self.inputs, inputs)
        feeds = {name: to_ort(tensor) for name, tensor in checked.items()}
        names = [info.name for info in self.outputs]
        try:
            values = self._session.run_with_ort_values(names, feeds)
        except Exception as error:
            message = f"Model on {self.backend} must run, got {_first_line(error)}."
            raise UnsupportedModelError(message) from error
        # one at a time, so that no two copies of all outputs exist
        return {info.name: _from_ort(values.pop(0), info) for info in self.outputs}

    def close(self) -> None:
        """Frees the session."""
        del self._session
        release_free_memory()


def session_options(backend: str) -> ort.SessionOptions:
    """Options of a session for a backend, on as many threads as PyTorch uses.

    Raises:
        BackendUnavailableError: ONNX Runtime or qkexport's operator library is not there.
    """
    try:
        import onnxruntime as ort
    except ImportError as error:
        message = f"Backend {backend} needs ONNX Runtime, got {error}."
        hint = "pip install 'qkexport[cpu]'"
        raise BackendUnavailableError(message, hint=hint) from error
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors are raised, and told once
    options.intra_op_num_threads = torch.get_num_threads()
    # An arena keeps what the largest case took, its outputs too; without one no run was slower.
    options.enable_cpu_mem_arena = False
    if backend == CUSTOM:
        from qkexport.native import register_ort

        register_ort(options)
    return options


def _open(path: Path, options: ort.SessionOptions, backend: str) -> ort.InferenceSession:
    import onnxruntime as ort

    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        message = f"Model {path.name} must load on {backend}, got {_first_line(error)}."
        raise UnsupportedModelError(message) from error


def _emulated(path: Path, backend: str) -> ir.Model | None:
    """The model rewritten for emulation, or None when it needs none."""
    import onnx_ir as ir
    from onnx_ir.passes.common import InlinePass, ShapeInferencePass

    try:
        if not needs_emulation(ir.from_proto(load_outline(path))):
            return None
        model = ir.load(path)
    except Exception as error:
        message = f"Model {path.name} must load on {backend}, got {_first_line(error)}."
        raise UnsupportedModelError(message) from error
    if backend != STOCK:  # its library has a kernel, which a body would hide
        for identifier in [key for key in model.functions if key[0] == OP_DOMAIN]:
            del model.functions[identifier]
    if model.functions:
        InlinePass()(model)
        ShapeInferencePass(data_prop=False)(model)
    emulate_bfloat16(model, native=frozenset() if backend == STOCK else frozenset({OP_DOMAIN}))
    return model


def _save(model: ir.Model, folder: Path) -> Path:
    import onnx_ir as ir

    path = folder / "emulated.onnx"
    ir.save(model, path, external_data="emulated.data")
    return path


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _info(argument: ort.NodeArg) -> TensorInfo:
    shape = tuple("?" if size is None else size for size in argument.shape)
    return TensorInfo(argument.name, torch_dtype(argument.type), shape)


def to_ort(tensor: torch.Tensor) -> ort.OrtValue:
    """A tensor as ONNX Runtime takes it; bfloat16 goes by its bits."""
    import onnxruntime as ort

    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        bits = tensor.view(torch.uint16).numpy()
        number = ONNX_DTYPES[torch.bfloat16]
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)
    return ort.OrtValue.ortvalue_from_numpy(tensor.numpy())


def _from_ort(value: ort.OrtValue, info: TensorInfo) -> torch.Tensor:
    if info.dtype is not torch.bfloat16:
        return torch.from_numpy(value.numpy())
    import numpy as np

    # numpy() has no bfloat16: read the bits where they lie, and copy them before value goes.
    count = value.tensor_size_in_bytes()
    import ctypes

    raw = (ctypes.c_byte * count).from_address(value.data_ptr()) if count else b""
    bits = np.frombuffer(raw, dtype=np.int16).copy()
    return torch.from_numpy(bits).view(torch.bfloat16).reshape(value.shape())
