"""Conditions that tell packed sequences apart vanish where positions are those of one sequence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from fused_model import FusedModel, fuse, run
from onnx_text import read_model
from zoo.export import export_model, export_program, worst_error
from zoo.family import Sample
from zoo.language import causal_lm

from qkexport.match import recipe as r

_TEXT = """<ir_version: 10, opset_import: ["" : 20]>
packed (float[b,2,s,8] q, float[b,2,s,8] k, float[b,2,s,8] v, int64[b,s] given)
    => (float[b,2,s,8] y)
<int64[b,1] first, int64[b,s] after, int64[b,s] before,
 float[8] g = {1.5,0.5,1.0,2.0,0.25,1.0,1.0,0.75}, int64 zero = {0}, int64 one = {1},
 int64 two = {2}, int64 four = {4}, int64[1] at0 = {0}, int64[1] at1 = {1}, int64[1] last = {-1},
 int64[1] end = {9223372036854775807}, int64[2] heads_columns = {1,2}, int64[2] heads_rows = {1,3},
 int64[2] before_rows = {0,1}, float half = {0.5}, float low = {-inf}, float eps = {1e-5},
 float power = {2}>
{
  b_dim = Shape<start=0, end=1>(q)
  s_dim = Shape<start=2, end=3>(q)
  n = Squeeze(s_dim)
  numbers = POSITIONS
  row = Unsqueeze(numbers, at0)
  all = Concat<axis=0>(b_dim, at1)
  spread = Expand(row, all)
  position = EVERY
  first = Slice(position, at0, at1, at1)
  earlier = Sub(first, PREPENDED)
  joined = Concat<axis=1>(earlier, position)
  after = Slice(joined, at1, end, last)
  before = Slice(joined, at0, s_dim, last)
  step = Sub(after, before)
  continues = Equal(step, EXPECTED)
  begins = Not(continues)
  each = Cast<to=7>(COUNTED)
  sequence = CumSum(each, last)
  of_query = Unsqueeze(sequence, heads_rows)
  of_key = Unsqueeze(sequence, heads_columns)
  same = Equal(of_query, of_key)
  i = Unsqueeze(ROWS, heads_rows)
  j = Unsqueeze(spread, heads_columns)
  old = CAUSAL
  keep = And(old, OTHER)
  q2 = Pow(q, power)
  q3 = ReduceMean(q2, last)
  q4 = Add(q3, eps)
  q5 = Sqrt(q4)
  q6 = Div(q, q5)
  qn = Mul(q6, g)
  k2 = Pow(k, power)
  k3 = ReduceMean(k2, last)
  k4 = Add(k3, eps)
  k5 = Sqrt(k4)
  k6 = Div(k, k5)
  kn = Mul(k6, g)
  turned = Transpose<perm=[0,1,3,2]>(kn)
  product = MatMul(qn, turned)
  scaled = Mul(product, half)
  scores = Where(keep, scaled, low)
  weights = Softmax<axis=-1>(scores)
  y = MatMul(weights, v)
  past = Add(n, one)
  twice = Mul(n, two)
  older = And(below, same)
  below = LessOrEqual(j, i)
  shifted = Add(spread, n)
  which = ConstantOfShape<value = int64[1] {0}>(b_dim)
  differs = Not(same)
  twofold = Mul(i, two)
  later = Add(spread, one)
}"""
_PLAIN = {
    "POSITIONS": "Range(zero, n, one)", "EVERY": "Identity(spread)", "PREPENDED": "one",
    "EXPECTED": "one", "COUNTED": "begins", "ROWS": "spread", "CAUSAL": "LessOrEqual(j, i)",
    "OTHER": "same",
}  # fmt: skip
_CAUSAL = ("upper_left", -1, -1)


def _fused(parts: dict[str, str]) -> tuple[ir.Model, FusedModel]:
    text = _TEXT
    for name, part in (_PLAIN | parts).items():
        text = text.replace(name, part)
    model = read_model(text)
    return model, fuse(model)


def _check(
    spec: tuple[str, int, int],
    parts: dict[str, str],
    *,
    masked: bool,
    lengths: tuple[int, ...] = (1, 2, 7),
) -> None:
    model, fused = _fused(parts)
    (match,) = fused.report.matches
    assert (str(match.spec.causal), match.spec.window_left, match.spec.window_right) == spec
    assert ("attn_mask" in match.inputs) == masked
    rng = np.random.default_rng(0)
    for length in lengths:
        shape = (2, 2, length, 8)
        inputs = {name: rng.normal(size=shape).astype(np.float32) for name in "qkv"}
        inputs["given"] = np.stack([np.arange(length) % 3, np.arange(length)])
        (before,), (after,) = run(model, inputs), run(fused.model, inputs)
        # A row that sees nothing is zero in the operator.
        expected = np.nan_to_num(before.astype(np.float64))
        np.testing.assert_allclose(after.astype(np.float64), expected, atol=2e-5)


def test_one_sequence_leaves_only_causal() -> None:
    _check(_CAUSAL, {}, masked=False, lengths=(0, 1, 2, 7, 64, 301))


@pytest.mark.parametrize(
    "parts",
    [
        {"OTHER": "old"},
        {"CAUSAL": "GreaterOrEqual(i, j)"},
        {"CAUSAL": "Identity(older)"},
        {"POSITIONS": "Range(one, past, one)"},
        {"EVERY": "Add(shifted, one)"},
        {"EVERY": "Gather<axis=0>(row, which)"},
    ],
    ids=str,
)
def test_other_spellings_of_one_sequence(parts: dict[str, str]) -> None:
    _check(_CAUSAL, parts, masked=False)


@pytest.mark.parametrize(
    "parts",
    [
        {"EXPECTED": "two"},
        {"PREPENDED": "two"},
        {"PREPENDED": "zero"},
        {"EVERY": "Mod(spread, four)"},
        {"EVERY": "Identity(given)"},
        {"COUNTED": "continues"},
        {"OTHER": "differs"},
    ],
    ids=str,
)
def test_what_is_not_proven_stays_a_mask_beside_causality(parts: dict[str, str]) -> None:
    _check(_CAUSAL, parts, masked=True)


@pytest.mark.parametrize(
    "parts",
    [
        {"POSITIONS": "Range(zero, twice, two)"},
        {"CAUSAL": "Less(j, i)"},
        {"CAUSAL": "LessOrEqual(j, twofold)"},
        {"ROWS": "given"},
    ],
    ids=str,
)
def test_an_order_that_is_not_proven_stays_a_mask(parts: dict[str, str]) -> None:
    _check(("none", -1, -1), parts, masked=True)


def test_an_order_that_always_holds_hides_nothing() -> None:
    _check(("none", -1, -1), {"CAUSAL": "LessOrEqual(i, i)"}, masked=False)


def test_order_the_other_way_is_no_causality() -> None:
    _check(("none", 0, -1), {"CAUSAL": "GreaterOrEqual(j, i)"}, masked=False)


def test_rows_that_start_one_later_see_one_more() -> None:
    _check(("none", -1, 1), {"ROWS": "later"}, masked=False)


def test_the_mask_of_packed_sequences_is_the_condition_alone() -> None:
    _, fused = _fused({"EVERY": "Identity(given)"})
    (match,) = fused.report.matches
    (source,) = r.sources(match.inputs["attn_mask"])
    assert source.name == "same"


def _language_model(model_type: str, opset: int, **options: Any) -> tuple[Sample, FusedModel]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other people's models say about themselves
        sample = causal_lm(model_type, "sdpa", masked=False, num_hidden_layers=1, **options)
        return sample, fuse(export_model(export_program(sample), opset))


def _at_lengths(sample: Sample, fused: FusedModel) -> None:
    for batch, length in ((1, 1), (3, 2), (2, 31), (1, 300)):
        ids = torch.randint(3, 64, (batch, length))
        again = Sample(sample.module, (), {"input_ids": ids}, sample.dynamic_shapes)
        assert worst_error(fused, again) < 1e-5, (batch, length)


def test_a_language_model_without_masks_is_causal_at_any_length() -> None:
    sample, fused = _language_model("qwen3", 24)
    (match,) = fused.report.matches
    assert str(match.spec.causal) == "upper_left"
    assert "attn_mask" not in match.inputs
    _at_lengths(sample, fused)


_WINDOW: dict[str, Any] = {"sliding_window": 5, "layer_types": ["sliding_attention"]}


@pytest.mark.nightly
@pytest.mark.parametrize("opset", [20, 23, 24])
@pytest.mark.parametrize(
    ("model_type", "options"),
    [("qwen3", _WINDOW | {"use_sliding_window": True}), ("gemma3_text", _WINDOW)],
)
def test_a_sliding_window_without_masks_is_two_numbers(
    model_type: str, options: dict[str, Any], opset: int
) -> None:
    sample, fused = _language_model(model_type, opset, **options)
    (match,) = fused.report.matches
    assert (str(match.spec.causal), match.spec.window_left) == ("upper_left", 4)
    assert "attn_mask" not in match.inputs
    _at_lengths(sample, fused)


@pytest.mark.nightly
@pytest.mark.parametrize("opset", [20, 24])
def test_positions_that_the_caller_gives_may_be_those_of_packed_sequences(opset: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = causal_lm("qwen3", "sdpa", masked=False, num_hidden_layers=1)
        ids = plain.kwargs["input_ids"]
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seqlen")}
        names = ("input_ids", "position_ids")
        kwargs = {"input_ids": ids, "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3]] * 2)}
        sample = Sample(plain.module, (), kwargs, dict.fromkeys(names, axes))
        fused = fuse(export_model(export_program(sample), opset))
    (match,) = fused.report.matches
    assert "attn_mask" in match.inputs
    for positions in ([0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 0, 1, 2]):
        kwargs = {"input_ids": ids, "position_ids": torch.tensor([positions] * 2)}
        again = Sample(plain.module, (), kwargs, sample.dynamic_shapes)
        assert worst_error(fused, again) < 1e-5, positions
