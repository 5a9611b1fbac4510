"""Earlier keys and values: inside the attention, concatenated in front, written in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnx.shape_inference
import onnx_ir as ir
import pytest
from fused_model import fuse, run

_HEAD = """<ir_version: 10, opset_import: ["" : 24]>
cached (float[b,4,s,8] q, float[b,2,s,8] k, float[b,2,s,8] v, float[b,2,p,8] pk, float[b,2,p,8] pv,
        int64[b] first) => (float[b,4,s,8] y, pk1, pv1)
<float[8] gq = {1.5,0.5,1.0,2.0,0.25,1.0,1.0,0.75},
 float[8] gk = {1.0,0.5,1.25,2.0,1.0,1.0,0.5,1.0},
 float[1] half = {0.5}>
{
  qn = RMSNormalization <axis=-1, epsilon=1e-5> (q, gq)
  kn = RMSNormalization <axis=-1, epsilon=1e-5> (k, gk)
"""


def _model(body: str) -> ir.Model:
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(_HEAD + body + "\n}"))
    return ir.from_proto(proto)


def _inputs(rows: int, past: int) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(0)

    def draw(heads: int, length: int) -> npt.NDArray[Any]:
        return rng.normal(size=(2, heads, length, 8)).astype(np.float32)

    return {
        "q": draw(4, rows), "k": draw(2, rows), "v": draw(2, rows), "pk": draw(2, past),
        "pv": draw(2, past), "first": np.array([1, 2], np.int64),
    }  # fmt: skip


def _check(body: str, rows: int = 3, past: int = 5, **spec: object) -> None:
    model = _model(body)
    fused = fuse(model)
    assert fused.report.fused == 1, fused.report
    match = fused.report.matches[0]
    for name, value in spec.items():
        assert getattr(match.spec, name) == value
    assert {"past_key", "past_value"} <= match.inputs.keys()
    assert match.signature.outputs == ("output", "present_key", "present_value")
    inputs = _inputs(rows, past)
    for before, after in zip(run(model, inputs), run(fused.model, inputs), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)


def _refused(body: str, reason: str) -> None:
    fused = fuse(_model(body))
    assert fused.report.fused == 0
    assert reason in fused.report.near_misses[0].reason


def test_past_of_the_attention_operator_is_carried() -> None:
    _check("y, pk1, pv1 = Attention <scale=0.4> (qn, kn, v, , pk, pv)")


def test_a_scale_on_new_keys_is_not_applied_to_earlier_ones() -> None:
    body = "kh = Mul(kn, half)\n  y, pk1, pv1 = Attention <scale=0.4> (qn, kh, v, , pk, pv)"
    _check(body, scale=pytest.approx(0.4))


def test_unnormalized_keys_behind_a_past_stay_as_they_are() -> None:
    body = "kh = Mul(k, half)\n  y, pk1, pv1 = Attention <scale=0.4> (qn, kh, v, , pk, pv)"
    _check(body, normalize_key=False)


def test_causal_with_a_past_counts_from_the_past() -> None:
    _check("y, pk1, pv1 = Attention <scale=0.4, is_causal=1> (qn, kn, v, , pk, pv)",
           causal="upper_left")  # fmt: skip


def test_concatenated_past_is_carried_and_the_presents_come_from_the_node() -> None:
    body = """pk1 = Concat<axis=2>(pk, kn)
  pv1 = Concat<axis=-2>(pv, v)
  y = Attention <scale=0.4> (qn, pk1, pv1)"""
    _check(body)


def test_values_without_a_past_are_refused() -> None:
    body = """pk1 = Concat<axis=2>(pk, kn)
  pv1 = Add(pv, pk)
  y = Attention <scale=0.4> (qn, pk1, pv1)"""
    _refused(body, "the values have none")


_WRITTEN = """rows = Shape<start=2, end=3>(k)
  {lengths}
  pk1 = TensorScatter<axis=2>(pk, kn, first)
  pv1 = TensorScatter(pv, v, {first})
  y = Attention <scale=0.4{causal}> (qn, pk1, pv1, , , , lengths)"""


@pytest.mark.parametrize("causal", ["", ", is_causal=1"])
def test_rows_written_in_place_are_a_static_cache(causal: str) -> None:
    body = _WRITTEN.format(lengths="lengths = Add(first, rows)", first="first", causal=causal)
    _check(body, kv_cache="static", causal="lower_right" if causal else "none")


def test_written_rows_of_unproven_length_are_refused() -> None:
    body = _WRITTEN.format(lengths="lengths = Add(first, first)", first="first", causal="")
    _refused(body, "valid length is not proven")


def test_keys_and_values_written_at_different_rows_are_refused() -> None:
    lengths = "lengths = Add(first, rows)\n  other = Add(first, first)"
    body = _WRITTEN.format(lengths=lengths, first="other", causal="")
    _refused(body, "different rows")


# What visibility says by row numbers alone: row i of the queries stands in row first + i.
_SEEN_BY_ROW = """rows = Shape<start=2, end=3>(k)
  buffer_rows = Shape<start=2, end=3>(pk)
  none = Constant <value_ints: ints = []> ()
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  window = Constant <value_int: int = {window}> ()
  row_count = Reshape(rows, none)
  buffer_count = Reshape(buffer_rows, none)
  i = Range(zero, row_count, one)
  j = Range(zero, buffer_count, one)
  down = Constant <value_ints: ints = [0, 1, 3]> ()
  aside = Constant <value_ints: ints = [1, 2, 3]> ()
  across = Constant <value_ints: ints = [0, 1, 2]> ()
  i4 = Unsqueeze(i, down)
  j4 = Unsqueeze(j, across)
  first4 = Unsqueeze({shift}, aside)
  row = Add(i4, first4)
  past_end = LessOrEqual(j4, row)
  oldest = Sub(row, window)
  recent = Greater(j4, oldest)
  seen = And(past_end, recent)
  pk1 = TensorScatter<axis=2>(pk, kn, first)
  pv1 = TensorScatter<axis=2>(pv, v, first)
  y = Attention <scale=0.4> (qn, pk1, pv1, {mask})"""


def test_a_causal_mask_by_row_tells_the_lengths_of_a_static_cache() -> None:
    body = _SEEN_BY_ROW.format(window=3, shift="first", mask="past_end")
    _check(body, kv_cache="static", causal="lower_right", window_left=-1)


def test_a_window_by_row_is_taken_out_of_the_mask_of_a_static_cache() -> None:
    body = _SEEN_BY_ROW.format(window=3, shift="first", mask="seen")
    _check(body, kv_cache="static", causal="lower_right", window_left=2)
    match = fuse(_model(body)).report.matches[0]
    assert "attn_mask" not in match.inputs


@pytest.mark.parametrize("shift", ["other", "later"])
def test_a_mask_counted_from_other_rows_does_not_tell_the_lengths(shift: str) -> None:
    body = _SEEN_BY_ROW.format(window=3, shift=shift, mask="past_end")
    others = "other = Add(first, first)\n  later = Sub(first, rows)\n  "
    _refused(body.replace("i4 =", others + "i4 =", 1), "valid length is not proven")


def test_a_window_alone_does_not_tell_the_lengths() -> None:
    body = _SEEN_BY_ROW.format(window=3, shift="first", mask="recent")
    _refused(body, "valid length is not proven")


_AND_LENGTHS = "lengths = Add(first, rows)\n  y = Attention"


@pytest.mark.parametrize(
    ("causal", "window_left", "masked"), [("", -1, True), (", is_causal=1", 2, False)]
)
def test_a_window_by_row_needs_rows_that_are_counted_alike(
    causal: str, window_left: int, masked: bool
) -> None:
    """Without causality the operator counts from the buffer's first row: the mask stays a mask."""
    body = _SEEN_BY_ROW.format(window=3, shift="first", mask="recent, , , lengths")
    body = body.replace("y = Attention <scale=0.4", f"{_AND_LENGTHS} <scale=0.4{causal}")
    _check(body, kv_cache="static", window_left=window_left)
    match = fuse(_model(body)).report.matches[0]
    assert ("attn_mask" in match.inputs) is masked
