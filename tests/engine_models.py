"""Small ONNX models with one attention, for builds that take a tenth of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import pytest

from qkexport.engine.bindings import Flavour, is_installed
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, AttentionSpec

needs_rtx: Final = pytest.mark.skipif(
    not is_installed(Flavour.TENSORRT_RTX),
    reason="tensorrt-rtx is not installed: pip install 'qkexport[rtx]'",
)

HEADS, HEAD_DIM = 2, 16
WIDTH: Final = HEADS * HEAD_DIM
_IR_VERSION: Final = 10
_OPSET: Final = 24


def spec_with(**changes: Any) -> AttentionSpec:
    """The attention of these models, with some attributes changed."""
    values: dict[str, Any] = {"num_heads": HEADS, "num_kv_heads": HEADS, "scale": 0.25}
    return AttentionSpec(**{**values, **changes})


def save_fused(
    path: Path, spec: AttentionSpec | None = None, *, dtype: str = "float16", seed: int = 0
) -> Path:
    """x[batch, seq, 32] -> projection -> QKNormAttention -> y, without function bodies."""
    spec = spec or spec_with()
    x = _input("x", dtype, ["batch", "seq", WIDTH])
    projection = _weight("w", (WIDTH, 3 * WIDTH), dtype, seed)
    gain = _weight("gain", (HEAD_DIM,), dtype, seed + 1)
    qkv = ir.node("MatMul", [x, projection])
    split = ir.node("Split", qkv.outputs, {"axis": -1, "num_outputs": 3}, num_outputs=3)
    _name(split.outputs, dtype, ["batch", "seq", WIDTH])
    attention = ir.Node(
        OP_DOMAIN,
        OP_TYPE,
        [*split.outputs, gain, gain],
        ir.convenience.convert_attributes(spec.to_attributes()),
        name="attention",
    )
    _name(attention.outputs, dtype, ["batch", "seq", WIDTH], names=["y"])
    return _save(path, [x], attention.outputs, [qkv, split, attention], [projection, gain])


def save_cross(path: Path, spec: AttentionSpec) -> Path:
    """Queries and keys of different lengths straight into QKNormAttention, float16."""
    lengths = {"query": "seq_q", "key": "seq_kv", "value": "seq_kv"}
    tensors = [
        _input(name, "float16", ["batch", length, WIDTH]) for name, length in lengths.items()
    ]
    attributes = ir.convenience.convert_attributes(spec.to_attributes())
    attention = ir.Node(OP_DOMAIN, OP_TYPE, tensors, attributes, name="attention")
    _name(attention.outputs, "float16", ["batch", "seq_q", WIDTH], names=["y"])
    return _save(path, tensors, attention.outputs, [attention], [])


def save_native(
    path: Path,
    *,
    dtype: str = "float16",
    attributes: dict[str, Any] | None = None,
    masked: bool = False,
    unused: bool = False,
    seed: int = 0,
) -> Path:
    """q, k and v straight into ONNX Attention; no operator of ours."""
    tensors = [_input(name, dtype, ["batch", HEADS, "seq", HEAD_DIM]) for name in "qkv"]
    inputs = [*tensors]
    if masked:
        inputs.append(_input("mask", dtype, [1, 1, "seq", "seq"]))
    gain = _weight("gain", (HEAD_DIM,), dtype, seed)
    norm = ir.node("RMSNormalization", [tensors[0], gain], {"epsilon": 1e-6})
    attention = ir.node(
        "Attention", [*norm.outputs, *inputs[1:]], {"scale": 0.25, **(attributes or {})}
    )
    attention.name = "attention"
    _name(attention.outputs, dtype, ["batch", HEADS, "seq", HEAD_DIM], names=["y"])
    if unused:
        inputs.append(_input("unused", dtype, ["batch"]))
    return _save(path, inputs, attention.outputs, [norm, attention], [gain])


def _input(name: str, dtype: str, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(_data_type(dtype)), shape=ir.Shape(shape))


def _name(values: Any, dtype: str, shape: list[int | str], names: list[str] | None = None) -> None:
    for place, value in enumerate(values):
        value.name = names[place] if names else f"split_{place}"
        value.type, value.shape = ir.TensorType(_data_type(dtype)), ir.Shape(shape)


def _data_type(dtype: str) -> ir.DataType:
    return ir.DataType.FLOAT if dtype == "float32" else ir.DataType[dtype.upper()]


def _weight(name: str, shape: tuple[int, ...], dtype: str, seed: int) -> ir.Value:
    values = np.random.default_rng(seed).standard_normal(shape) * 0.1
    return _initializer(name, values, dtype)


def _initializer(name: str, values: Any, dtype: str) -> ir.Value:
    data_type = _data_type(dtype)
    tensor = ir.tensor(values.astype(data_type.numpy()), data_type, name=name)
    return ir.Value(
        name=name, type=ir.TensorType(data_type), shape=ir.Shape(values.shape), const_value=tensor
    )


def _save(
    path: Path,
    inputs: list[ir.Value],
    outputs: Any,
    nodes: list[ir.Node],
    weights: list[ir.Value],
) -> Path:
    imports = {"": _OPSET}
    if any(node.domain == OP_DOMAIN for node in nodes):
        imports[OP_DOMAIN] = OP_VERSION
    graph = ir.Graph(
        inputs, outputs, nodes=nodes, initializers=weights, opset_imports=imports, name="main"
    )
    ir.save(ir.Model(graph, ir_version=_IR_VERSION), path)
    return path


def save_deep(path: Path, *, depth: int, width: int = 512) -> Path:
    """A stack of gated layers, each with weights of its own; TensorRT compiles it for seconds."""
    x = _input("x", "float16", ["batch", "seq", width])
    nodes: list[ir.Node] = []
    weights: list[ir.Value] = []
    value = x
    for layer in range(depth):
        weight = _weight(f"w{layer}", (width, width), "float16", layer)
        weights.append(weight)
        product = ir.node("MatMul", [value, weight])
        nodes += [
            product,
            ir.node("Sigmoid", product.outputs),
            ir.node("Softmax", product.outputs, {"axis": -1}),
        ]
        nodes.append(ir.node("Mul", [nodes[-2].outputs[0], nodes[-1].outputs[0]]))
        value = nodes[-1].outputs[0]
    _name([value], "float16", ["batch", "seq", width], names=["y"])
    return _save(path, [x], [value], nodes, weights)


def save_embedding(path: Path, *, rows: int, width: int = 1024) -> Path:
    """ids -> a float16 table in a sparse file -> QKNormAttention -> y."""
    data = path.with_name(f"{path.name}.weights")
    shape = ir.Shape([rows, width])
    with data.open("wb") as file:
        file.truncate(rows * width * 2)
    tensor = ir.ExternalTensor(
        data.name,
        0,
        data.stat().st_size,
        ir.DataType.FLOAT16,
        shape=shape,
        name="table",
        base_dir=data.parent,
    )
    table = ir.Value(
        name="table", type=ir.TensorType(ir.DataType.FLOAT16), shape=shape, const_value=tensor
    )
    ids = ir.Value(name="ids", type=ir.TensorType(ir.DataType.INT64))
    ids.shape = ir.Shape(["batch", "seq"])
    gather = ir.node("Gather", [table, ids])
    _name(gather.outputs, "float16", ["batch", "seq", width])
    spec = AttentionSpec(num_heads=16, num_kv_heads=16, scale=0.125)
    attributes = ir.convenience.convert_attributes(spec.to_attributes())
    attention = ir.Node(OP_DOMAIN, OP_TYPE, [gather.outputs[0]] * 3, attributes, name="attention")
    _name(attention.outputs, "float16", ["batch", "seq", width], names=["y"])
    return _save(path, [ids], attention.outputs, [gather, attention], [table])


def save_reshape(path: Path) -> Path:
    """x[n, 6] in the shape that a second input says."""
    x = _input("x", "float16", ["n", 6])
    target = ir.Value(name="target", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([2]))
    reshape = ir.node("Reshape", [x, target])
    relu = ir.node("Relu", reshape.outputs)
    _name(relu.outputs, "float16", ["a", "b"], names=["y"])
    return _save(path, [x, target], relu.outputs, [reshape, relu], [])
