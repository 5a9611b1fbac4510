"""The probes: each computes something known, or raises."""

from __future__ import annotations

import dataclasses
import enum
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from qkexport.diagnosis.known_answer import SPEC, check_answer, known_inputs, known_model
from qkexport.errors import BackendUnavailableError

Probe = Callable[[], str]


def probe_pytorch() -> str:
    """The operator as PyTorch users call it."""
    import torch

    import qkexport.torch_op  # noqa: F401  registers the operator

    attributes = {field.name: getattr(SPEC, field.name) for field in dataclasses.fields(SPEC)}
    plain = {
        name: str(value) if isinstance(value, enum.Enum) else value
        for name, value in attributes.items()
    }
    operator = torch.ops.qkexport.qk_norm_attention
    return check_answer(operator(*known_inputs().values(), **plain))


def probe_convert() -> str:
    """PyTorch to ONNX, and the attention in it found."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from qkexport.interpret import Interpreter
    from qkexport.load import TorchSource
    from qkexport.match import find_attention
    from qkexport.rewrite import fuse_attention
    from qkexport.trace import trace

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.RMSNorm(2, eps=1e-12)

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = (x.reshape(1, 2, 1, 2).transpose(1, 2) for x in (q, k, v))
            y = scaled_dot_product_attention(self.norm(q), self.norm(k), v, scale=1.0)
            return y.transpose(1, 2).flatten(2)

    inputs = tuple(known_inputs().values())
    model = trace(TorchSource("probe", Attention(), inputs), opset=23).model
    report = find_attention(model)
    fuse_attention(model, report)
    fused = sum(node.domain == "qkexport" for node in model.graph)
    if fused != 1:
        message = f"one attention had to be fused, got {fused}"
        raise ArithmeticError(message)
    names = [str(value.name) for value in model.graph.inputs]
    outputs = Interpreter(model, exact=False).run(dict(zip(names, inputs, strict=True)))
    return f"1 of 1 attentions fused, and {check_answer(next(iter(outputs.values())))}"


def _probe_ort(backend: str) -> str:
    import onnx_ir as ir

    from qkexport.export import to_form
    from qkexport.run.ort_runner import OrtRunner

    with tempfile.TemporaryDirectory(prefix="qkexport-doctor-") as folder:
        path = Path(folder) / "known.onnx"
        ir.save(to_form(known_model(), "portable"), path)
        with OrtRunner(path, backend) as runner:
            return check_answer(runner.run(known_inputs())["output"])


def probe_plugin() -> str:
    """The TensorRT plugin's own code, through the host."""
    from qkexport.run.plugin_attention import PluginRunner

    inputs = known_inputs()
    return check_answer(PluginRunner.for_tensors(SPEC, inputs).run(inputs)["output"])


def probe_cuda() -> str:
    """The plugin's kernels on the GPU."""
    import torch

    if not torch.cuda.is_available():
        raise BackendUnavailableError("CUDA needs an NVIDIA GPU that torch can use, got none.")
    from qkexport.run.plugin_attention import PluginRunner

    inputs = {name: x.cuda() for name, x in known_inputs().items()}
    answer = check_answer(PluginRunner.for_tensors(SPEC, inputs).run(inputs)["output"])
    return f"{torch.cuda.get_device_name()}: {answer}"


def probe_tensorrt() -> str:
    """A builder, which needs the GPU."""
    from qkexport.engine.bindings import Flavour, load_bindings
    from qkexport.engine.device import find_gpu

    bindings = load_bindings(Flavour.TENSORRT)
    gpu = find_gpu()
    if gpu is None:
        message = "Building for TensorRT needs an NVIDIA GPU and its driver, got none."
        raise BackendUnavailableError(message, hint="build on a machine with the GPU.")
    return f"TensorRT {bindings.__version__} on {gpu.name}"


def probe_tensorrt_rtx() -> str:
    """A real engine, compiled ahead of time."""
    import onnx_ir as ir

    from qkexport.engine import BuildOptions, build
    from qkexport.export import to_form

    with tempfile.TemporaryDirectory(prefix="qkexport-doctor-") as folder:
        path = Path(folder) / "known.onnx"
        ir.save(to_form(known_model(), "portable"), path)
        engine = Path(folder) / "known.engine"
        result = build(
            path, engine, runtime="tensorrt-rtx", options=BuildOptions(targets=("sm_89",))
        )
        if not result:
            message = "an engine of one attention could not be built"
            raise ArithmeticError(message)
        size = engine.stat().st_size
    return f"BUILT an engine of one attention for sm_89, {size} bytes; running needs a GPU"


def probe_hf() -> str:
    """The norm of transformers' own Qwen3 on (3, 4)."""
    import torch
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    norm = Qwen3RMSNorm(2, eps=0.0)
    found = norm(torch.tensor([3.0, 4.0])).tolist()
    expected = [3 / 12.5**0.5, 4 / 12.5**0.5]
    error = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    if not error < 1e-6:
        message = f"a known norm came out as {found}"
        raise ArithmeticError(message)
    return "transformers' Qwen3 norm gives the known answer"


PROBES: Final[Mapping[str, Probe]] = {
    "pytorch": probe_pytorch,
    "convert": probe_convert,
    "ort-stock": lambda: _probe_ort("ort-stock"),
    "ort": lambda: _probe_ort("ort"),
    "plugin": probe_plugin,
    "cuda": probe_cuda,
    "tensorrt": probe_tensorrt,
    "tensorrt-rtx": probe_tensorrt_rtx,
    "hf": probe_hf,
}
