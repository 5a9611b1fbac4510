"""A model of one attention node, run by stock ONNX Runtime through its function body."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir
import onnxruntime as ort
import torch
from attention_cases import ALL_OUTPUTS, AttentionCase

from qkexport.body.tape import data_type
from qkexport.compare.tolerance import NOISE_DRAWS, RowErrors, Tolerance, allowed_errors
from qkexport.onnx_function import lower, positional_inputs
from qkexport.reference import reference_attention, signature_of
from qkexport.signature import AttentionSignature, DType, TensorType
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION

_IR_VERSION = 10  # the first with function overloads


def case_signature(case: AttentionCase, *, presents: bool, dynamic: bool) -> AttentionSignature:
    """The signature of a case; `dynamic` forgets every batch size and length.

    Empty tensors are always dynamic: a graph input whose declared shape has a 0 trips ONNX
    Runtime's constant folding, whatever the body.
    """
    outputs = ALL_OUTPUTS if presents else ALL_OUTPUTS[:1]
    signature = signature_of(case.spec, case.inputs, outputs)
    empty = any(0 in tensor.shape for tensor in signature.inputs.values())
    if not dynamic and not empty:
        return signature
    types = {name: _forget_sizes(name, tensor) for name, tensor in signature.inputs.items()}
    return AttentionSignature(case.spec, types, outputs)


def _forget_sizes(name: str, tensor: TensorType) -> TensorType:
    shape = tensor.shape
    if name in ("query", "key", "value"):
        kept = {1, 3} if tensor.rank == 4 else {2}
    elif name in ("past_key", "past_value"):
        kept = {1, 3}
    elif name.endswith("_cache"):
        kept = {tensor.rank - 1, *({1} if tensor.rank == 4 else ())}
    elif name in ("attn_mask", "position_ids", "kv_lengths"):
        kept = set()
    else:
        return tensor
    return TensorType(tensor.dtype, tuple(d if i in kept else None for i, d in enumerate(shape)))


def attention_model(
    signature: AttentionSignature, function: ir.Function | None, opset: int
) -> ir.Model:
    """A graph that passes its inputs to one node; `function` is its body."""
    inputs: list[ir.Value | None] = []
    for name in positional_inputs(signature):
        tensor = signature.inputs.get(name)
        inputs.append(None if tensor is None else _graph_input(name, tensor))
    overload = function.overload if function is not None else ""
    node = ir.Node(
        OP_DOMAIN,
        OP_TYPE,
        inputs,
        ir.convenience.convert_attributes(signature.spec.to_attributes()),
        num_outputs=len(signature.outputs),
        overload=overload,
        name="attention",
    )
    for name, value in zip(signature.outputs, node.outputs, strict=True):
        value.name = name
        value.type = ir.TensorType(data_type(signature.dtype))
        value.shape = ir.Shape([None] * (signature.rank if name == "output" else 4))
    imports = {"": opset, OP_DOMAIN: OP_VERSION}
    graph_inputs = [value for value in inputs if value is not None]
    graph = ir.Graph(graph_inputs, node.outputs, nodes=[node], opset_imports=imports, name="main")
    functions = () if function is None else (function,)
    return ir.Model(graph, ir_version=_IR_VERSION, functions=functions)


def _graph_input(name: str, tensor: TensorType) -> ir.Value:
    dims = [dim if dim is not None else f"{name}_{axis}" for axis, dim in enumerate(tensor.shape)]
    return ir.Value(name=name, type=ir.TensorType(data_type(tensor.dtype)), shape=ir.Shape(dims))


def run_ort(model: ir.Model | bytes, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Outputs of a model in stock ONNX Runtime on the CPU, one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    data = model if isinstance(model, bytes) else ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    values = {name: _to_ort(x) for name, x in inputs.items()}
    names = [output.name for output in session.get_outputs()]
    results = session.run_with_ort_values(names, values)
    return [_from_ort(value) for value in results]


def _to_ort(x: torch.Tensor) -> ort.OrtValue:
    if x.dtype is torch.bfloat16:
        bits = x.contiguous().view(torch.int16).numpy()
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(data_type(DType.BFLOAT16)))
    return ort.OrtValue.ortvalue_from_numpy(x.contiguous().numpy())


def _from_ort(value: ort.OrtValue) -> torch.Tensor:
    if value.data_type() == "tensor(bfloat16)":
        return torch.utils.dlpack.from_dlpack(value._ortvalue.to_dlpack())
    return torch.from_numpy(value.numpy())


def run_body(
    case: AttentionCase,
    opset: int,
    *,
    runtime: str = "ort",
    presents: bool = False,
    dynamic: bool = False,
) -> dict[str, torch.Tensor]:
    """Outputs of the body of one case in stock ONNX Runtime, by name."""
    signature = case_signature(case, presents=presents, dynamic=dynamic)
    function = lower(signature, runtime, opset)
    results = run_ort(attention_model(signature, function, opset), case.inputs)
    return dict(zip(signature.outputs, results, strict=True))


def assert_like_reference(
    case: AttentionCase, results: Mapping[str, torch.Tensor], *, rounds_inside: bool = False
) -> None:
    """Holds results to the float64 reference with the package's tolerance rule.

    PyTorch's error is that of the reference in float32, rounding to T where the contract does. What
    exceeds the rule is judged once more with the effect of rounding noise on this very case.

    Args:
        case: What was computed.
        results: Outputs by name.
        rounds_inside: The computation rounds its intermediates to T, as products in T do, and not
            to float32.
    """
    names = tuple(results)
    oracle = reference_attention(case.spec, case.inputs, outputs=names)
    rounded = reference_attention(
        case.spec, case.inputs, outputs=names, compute_dtype=torch.float32
    )
    tolerance = Tolerance(case.inputs["query"].shape[-1] + oracle["output"].shape[-2])
    inside = case.inputs["query"].dtype if rounds_inside else torch.float32
    for name, result in results.items():
        assert result.dtype == case.inputs["query"].dtype, name
        assert result.shape == oracle[name].shape, name
        assert torch.equal(result.isnan(), oracle[name].isnan()), name
        if not result.numel():
            continue
        errors = _errors(result, oracle[name], rounded[name])
        if errors.candidate > allowed_errors(errors, tolerance, result.dtype):
            noise = _noise(case, name, names, torch.finfo(inside).eps)
            errors = dataclasses.replace(errors, noise=noise)
        (allowed,) = allowed_errors(errors, tolerance, result.dtype)
        assert errors.candidate <= allowed, f"{name} errs by {errors}, allowed {allowed:.3g}"


def _errors(result: torch.Tensor, oracle: torch.Tensor, rounded: torch.Tensor) -> RowErrors:
    """The whole tensor as one row."""
    error, baseline = (
        (x.double() - oracle).abs().nan_to_num(0.0).amax() for x in (result, rounded)
    )
    return RowErrors(error[None], baseline[None], oracle.abs().nan_to_num(0.0).amax()[None])


def _noise(case: AttentionCase, name: str, names: tuple[str, ...], ulp: float) -> torch.Tensor:
    """Largest root mean square effect of half an ulp on each element of the inputs, [1]."""
    exact = {k: x.double() if x.is_floating_point() else x for k, x in case.inputs.items()}
    if "head_scale" in exact:
        exact["head_scale"] = case.inputs["head_scale"]
    oracle = reference_attention(case.spec, exact, outputs=names)[name]
    squares = torch.zeros_like(oracle)
    for _ in range(NOISE_DRAWS):
        noisy = {
            key: x * (1 + ulp * (torch.rand(x.shape, dtype=torch.float64) - 0.5))
            for key, x in exact.items()
            if x.dtype is torch.float64 and key != "attn_mask"
        }
        moved = reference_attention(case.spec, {**exact, **noisy}, outputs=names)[name]
        squares += (moved - oracle).nan_to_num(0.0).square()
    return (squares / NOISE_DRAWS).sqrt().amax()[None]
