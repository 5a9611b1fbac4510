"""Types and shapes that an exporter left out are inferred; what it said stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from qkexport.infer_types import complete_types


def _model() -> tuple[ir.Model, list[ir.Value]]:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 59]))
    weight = ir.Value(name="w", const_value=ir.tensor(np.ones((59, 97), np.float32), name="w"))
    steps = tape.Tape()
    product = steps.op("MatMul", [x, weight])
    norm = steps.op("Identity", [product])
    unknown = steps.op("Nobody", [norm], domain="elsewhere")
    for name, value in (("product", product), ("norm", norm), ("unknown", unknown)):
        value.name = name
    graph = ir.Graph(
        [x],
        [unknown],
        nodes=steps.nodes,
        initializers=[weight],
        opset_imports={"": 20, "elsewhere": 1},
    )
    return ir.Model(graph, ir_version=10), [product, norm, unknown]


def test_missing_shapes_are_inferred_with_their_symbols() -> None:
    model, (product, norm, unknown) = _model()
    complete_types(model)
    assert str(product.shape) == str(norm.shape) == "[n,97]"
    assert norm.dtype is ir.DataType.FLOAT
    assert unknown.shape is None


def test_known_shapes_stay() -> None:
    model, (product, norm, _) = _model()
    product.type, product.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["m", 97])
    complete_types(model)
    assert str(product.shape) == "[m,97]"
    assert norm.shape is not None


def test_a_known_half_stays_when_the_other_half_is_inferred() -> None:
    model, (product, _, _) = _model()
    product.shape = ir.Shape(["m", 97])
    complete_types(model)
    assert product.dtype is ir.DataType.FLOAT
    assert str(product.shape) == "[m,97]"


def test_weights_are_where_they_were_afterwards() -> None:
    model, _ = _model()
    before = model.graph.initializers["w"].const_value
    complete_types(model)
    assert model.graph.initializers["w"].const_value is before
    assert [value.name for value in model.graph.inputs] == ["x"]
