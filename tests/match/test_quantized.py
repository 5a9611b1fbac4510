"""Quantize and dequantize pairs: what they leave exact fuses, what they round in between stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.parser
import onnx.shape_inference
import onnx_ir as ir
import pytest
from fused_model import FusedModel, fuse, run

_MODEL = """<ir_version: 10, opset_import: ["" : 21]>
quantized (float[b,3,s,8] q, float[b,3,t,8] k, float[b,3,t,8] v) => (float[b,3,s,8] y)
<float step = {0.05}, int8 zero = {0}, float[1] eps = {1e-5}, float two = {2.0},
 int64[1] last = {-1}, float scale = {0.35}, int8[8] gain8 = {20,18,25,30,12,9,22,16},
 float fine = {0.007843}, uint8 zero8 = {0}>
{
  gain = DequantizeLinear(gain8, step, zero)
  QUERY
  KEY
  VALUE
  turned = Transpose<perm=[0,1,3,2]>(kn)
  product = MatMul(qn, turned)
  scores = Mul(product, scale)
  SCORES
  weights = Softmax<axis=-1>(ready)
  WEIGHTS
  y = MatMul(probabilities, value)
}
"""


def _pair(name: str, result: str, scale: str = "step", zero: str = "zero") -> str:
    return (
        f"{result}8 = QuantizeLinear({name}, {scale}, {zero})\n"
        f"  {result} = DequantizeLinear({result}8, {scale}, {zero})"
    )


def _norm(source: str, result: str) -> str:
    p = result
    return f"""{p}2 = Pow({source}, two)
  {p}m = ReduceMean({p}2, last)
  {p}e = Add({p}m, eps)
  {p}r = Sqrt({p}e)
  {p}u = Div({source}, {p}r)
  {p} = Mul({p}u, gain)"""


def _model(place: str = "") -> ir.Model:
    """A model with one pair: before or after a norm, on values, scores or probabilities."""
    parts = {
        "QUERY": _norm("q", "qn"),
        "KEY": _norm("k", "kn"),
        "VALUE": "value = Identity(v)",
        "SCORES": "ready = Identity(scores)",
        "WEIGHTS": "probabilities = Identity(weights)",
    }
    changed = {
        "raw": {"QUERY": f"{_pair('q', 'qq')}\n  {_norm('qq', 'qn')}"},
        "normed": {"QUERY": f"{_norm('q', 'qx')}\n  {_pair('qx', 'qn')}"},
        "value": {"VALUE": _pair("v", "value")},
        "scores": {"SCORES": _pair("scores", "ready")},
        "weights": {"WEIGHTS": _pair("weights", "probabilities", "fine", "zero8")},
    }.get(place, {})
    text = _MODEL
    for name, part in (parts | changed).items():
        text = text.replace(f"  {name}\n", f"  {part}\n")
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def _inputs() -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 3, 4, 8), "k": (2, 3, 6, 8), "v": (2, 3, 6, 8)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _fused(place: str) -> FusedModel:
    model = _model(place)
    fused = fuse(model)
    before, after = run(model, _inputs()), run(fused.model, _inputs())
    for left, right in zip(before, after, strict=True):
        assert np.abs(left.astype(np.float64) - right.astype(np.float64)).max() < 1e-5
    return fused


@pytest.mark.parametrize("place", ["", "raw", "value"])
def test_pairs_outside_and_quantized_gains_are_carried(place: str) -> None:
    report = _fused(place).report
    assert (report.found, report.fused) == (1, 1), report.near_misses


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("normed", "between norm and scores stands DequantizeLinear"),
        ("scores", "the scores are quantized"),
        ("weights", "the probabilities are changed before they meet the values"),
    ],
)
def test_what_is_rounded_in_between_stays_with_the_reason(place: str, reason: str) -> None:
    report = _fused(place).report
    assert (report.found, report.fused) == (1, 0)
    assert reason in report.near_misses[0].reason
