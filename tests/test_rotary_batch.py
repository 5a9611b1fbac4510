"""Tables of RotaryEmbedding nodes get the batch that ONNX asks for, and nothing else changes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from qkexport.rotary_batch import complete_rotary_batches

HEADS, SEQ, DIM = 3, 5, 8
Array = npt.NDArray[np.float32]


def _model(tables: list[str], nodes: list[str], x: str = "batch, 3, seq, 8") -> ir.Model:
    values = "".join(f", {table}" for table in tables)
    body = "\n".join(nodes)
    text = f"""
        <ir_version: 10, opset_import: ["" : 23]>
        rotation (float[{x}] x{values}) => (float[{x}] y) {{ {body} }}
    """
    return ir.from_proto(onnx.parser.parse_model(text))


def _run(model: ir.Model, **feeds: npt.NDArray[np.generic]) -> Array:
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (y,) = session.run(None, feeds)
    return np.asarray(y)


def _inputs(batch: int) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(7)
    angles = random.uniform(-3, 3, (1, SEQ, DIM // 2))
    x = random.standard_normal((batch, HEADS, SEQ, DIM), np.float32)
    return x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _rotated(x: Array, cos: Array, sin: Array) -> npt.NDArray[np.float64]:
    first, second = np.split(x.astype(np.float64), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


SHARED = ["float[1, seq, 4] cos", "float[1, seq, 4] sin"]


@pytest.mark.parametrize("tables", [SHARED, ["float[n, seq, 4] cos", "float[n, seq, 4] sin"]])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_tables_of_batch_one_serve_any_batch(tables: list[str], batch: int) -> None:
    twice = ["z = RotaryEmbedding(x, cos, sin)", "y = RotaryEmbedding(z, cos, sin)"]
    model = _model(tables, twice)
    x, cos, sin = _inputs(batch)
    if batch > 1:
        with pytest.raises(InvalidArgument, match="cos_cache"):
            _run(model, x=x, cos=cos, sin=sin)
    assert complete_rotary_batches(model) == 4
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    expected = _rotated(_rotated(x, cos, sin).astype(np.float32), cos, sin)
    np.testing.assert_allclose(_run(model, x=x, cos=cos, sin=sin), expected, atol=1e-5)


def test_equal_tables_of_equal_batches_are_expanded_once() -> None:
    model = _model(
        SHARED,
        [
            "p, q = Split <axis = 2, num_outputs = 2> (x)",
            "z = Concat <axis = 2> (p, q)",
            "a = RotaryEmbedding(x, cos, sin)",
            "b = RotaryEmbedding(x, cos, sin)",
            "c = Add(a, b)",
            "y = Add(c, z)",
        ],
    )
    assert complete_rotary_batches(model) == 4
    assert sum(node.op_type == "Expand" for node in model.graph) == 2


@pytest.mark.parametrize("batch", [1, 3])
def test_positions_of_batch_one_serve_any_batch(batch: int) -> None:
    tables = ["float[9, 4] cos", "float[9, 4] sin", "int64[1, seq] ids"]
    model = _model(tables, ["y = RotaryEmbedding(x, cos, sin, ids)"])
    x, _, _ = _inputs(batch)
    angles = np.linspace(-2, 2, 36, dtype=np.float32).reshape(9, 4)
    ids = np.array([[8, 0, 3, 3, 1]])
    assert complete_rotary_batches(model) == 1
    actual = _run(model, x=x, cos=np.cos(angles), sin=np.sin(angles), ids=ids)
    expected = _rotated(x, np.cos(angles)[ids[0]][None], np.sin(angles)[ids[0]][None])
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("tables", "x"),
    [
        (["float[batch, seq, 4] cos", "float[batch, seq, 4] sin"], "batch, 3, seq, 8"),
        (["float[2, seq, 4] cos", "float[2, seq, 4] sin"], "2, 3, seq, 8"),
        (SHARED, "1, 3, seq, 8"),
    ],
)
def test_valid_tables_are_left_alone(tables: list[str], x: str) -> None:
    model = _model(tables, ["y = RotaryEmbedding(x, cos, sin)"], x)
    assert complete_rotary_batches(model) == 0
    assert [node.op_type for node in model.graph] == ["RotaryEmbedding"]


def test_a_rotation_of_another_domain_is_left_alone() -> None:
    model = _model(SHARED, ["y = RotaryEmbedding(x, cos, sin)"])
    next(iter(model.graph)).domain = "com.microsoft"
    assert complete_rotary_batches(model) == 0
