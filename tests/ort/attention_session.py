"""One QKNormAttention node as a model, and sessions of ONNX Runtime that run it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper

from qkexport.native import register_ort
from qkexport.reference import signature_of
from qkexport.signature import INPUT_NAMES
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, AttentionSpec

ONNX_TYPES: Final = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.bool: TensorProto.BOOL,
    torch.int64: TensorProto.INT64,
}
TORCH_TYPES: Final = {onnx_type: dtype for dtype, onnx_type in ONNX_TYPES.items()}
PROVIDERS: Final = ["CPUExecutionProvider"]


def attention_model(
    spec: AttentionSpec,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str] = ("output",),
    *,
    packed: bool = False,
    dynamic: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of one node.

    Args:
        spec: The node's attributes.
        inputs: Which inputs it has, and of which shapes.
        outputs: Its outputs.
        packed: Spell the inputs with input_roles, absent ones removed.
        dynamic: Declare no dimension as a number.
        attributes: Attributes to change (a value) or leave out (None).
    """
    names = [name for name in INPUT_NAMES if name in inputs]
    roles = {"input_roles": ",".join(names), "output_roles": ",".join(outputs)} if packed else {}
    changed = {**spec.to_attributes(**roles), **(attributes or {})}
    node = helper.make_node(
        OP_TYPE,
        names if packed else _positional(names),
        list(outputs),
        name="attention",
        domain=OP_DOMAIN,
        **{name: value for name, value in changed.items() if value is not None},
    )
    graph = helper.make_graph(
        [node],
        "attention",
        [_value_info(name, inputs[name], dynamic) for name in names],
        [
            helper.make_tensor_value_info(n, ONNX_TYPES[inputs["query"].dtype], None)
            for n in outputs
        ],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(OP_DOMAIN, OP_VERSION)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _positional(names: Sequence[str]) -> list[str]:
    last = max(INPUT_NAMES.index(name) for name in names)
    return [name if name in names else "" for name in INPUT_NAMES[: last + 1]]


def _value_info(name: str, tensor: torch.Tensor, dynamic: bool) -> onnx.ValueInfoProto:
    shape = [f"{name}_{axis}" for axis in range(tensor.dim())] if dynamic else list(tensor.shape)
    return helper.make_tensor_value_info(name, ONNX_TYPES[tensor.dtype], shape)


def open_session(
    model: onnx.ModelProto, *, num_threads: int = 1, options: ort.SessionOptions | None = None
) -> ort.InferenceSession:
    """A session with the operator library registered."""
    options = options or ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.log_severity_level = 4
    register_ort(options)
    return ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)


def to_ort(tensor: torch.Tensor) -> ort.OrtValue:
    tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        bits = tensor.view(torch.uint16).numpy()
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(tensor.numpy())


def from_ort(value: ort.OrtValue) -> torch.Tensor:
    dtype = TORCH_TYPES[value.element_type()]
    if dtype is not torch.bfloat16:
        return torch.from_numpy(value.numpy().copy())
    tensor = torch.empty(value.shape(), dtype=torch.bfloat16)
    bits = (ctypes.c_uint16 * tensor.numel()).from_address(value.data_ptr())
    tensor.view(torch.uint16).flatten().numpy()[:] = np.ctypeslib.as_array(bits)
    return tensor


def run_session(
    session: ort.InferenceSession, inputs: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Evaluates the model on torch tensors."""
    feeds = {name: to_ort(tensor) for name, tensor in inputs.items()}
    names = [output.name for output in session.get_outputs()]
    values = session.run_with_ort_values(names, feeds)
    return {name: from_ort(value) for name, value in zip(names, values, strict=True)}


def run_in_ort(
    spec: AttentionSpec,
    inputs: Mapping[str, torch.Tensor],
    outputs: tuple[str, ...] = ("output",),
    *,
    num_threads: int = 1,
    packed: bool = False,
    dynamic: bool = False,
) -> dict[str, torch.Tensor]:
    """One attention through the operator library."""
    signature_of(spec, inputs, outputs)
    model = attention_model(spec, inputs, outputs, packed=packed, dynamic=dynamic)
    return run_session(open_session(model, num_threads=num_threads), inputs)
