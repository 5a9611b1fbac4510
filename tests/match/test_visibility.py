"""Masks about the order of tokens become causal and windows; all others stay masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from fused_model import fuse, run
from onnx_text import read_model

_TEXT = """<ir_version: 10, opset_import: ["" : 24]>
masked (float[b,2,s,8] q, float[b,2,t,8] k, float[b,2,t,8] v, float[b,2,p,8] pk, float[b,2,p,8] pv,
        bool[b,1,1,t] pad) => (float[b,2,s,8] y)
<float[8] g = {1.5,0.5,1.0,2.0,0.25,1.0,1.0,0.75}, int64 zero = {0}, int64 one = {1},
 int64 two = {2}, int64[1] first = {0}, int64[1] second = {1}, float yes = {1},
 float no = {0}, float low = {-3.4e38}, float half = {0.5}>
{
  qn = RMSNormalization <axis=-1, epsilon=1e-5> (q, g)
  kn = RMSNormalization <axis=-1, epsilon=1e-5> (k, g)
  n_q = Squeeze(n_rows)
  n_rows = Shape<start=2, end=3>(q)
  n_columns = Shape<start=2, end=3>(all_k)
  n_k = Squeeze(n_columns)
  n_past = Squeeze(n_before)
  n_before = Shape<start=2, end=3>(pk)
  all_k = KEYS
  all_v = VALUES
  i0 = Range(zero, n_q, one)
  ROW_SHIFT
  i = Unsqueeze(i1, second)
  j0 = Range(zero, n_k, one)
  j = Unsqueeze(j0, first)
  size = Concat<axis=0>(n_rows, n_columns)
  BODY
}"""
_PLAIN = {"KEYS": "Identity(kn)", "VALUES": "Identity(v)", "ROW_SHIFT": "i1 = Identity(i0)"}
_PAST = {
    "KEYS": "Concat<axis=2>(pk, kn)", "VALUES": "Concat<axis=2>(pv, v)",
    "ROW_SHIFT": "i1 = Add(i0, n_past)",
}  # fmt: skip
_ATTENTION = "y = Attention <scale=0.4> (qn, all_k, all_v, mask)"


def _model(text: str, body: str, parts: dict[str, str]) -> ir.Model:
    text = text.replace("BODY", body)
    for name, part in parts.items():
        text = text.replace(name, part)
    return read_model(text)


def _inputs(rows: int, columns: int, past: int, padded: int) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    sizes = {"q": rows, "k": columns, "v": columns, "pk": past, "pv": past}
    feeds: dict[str, npt.NDArray[Any]] = {
        name: rng.normal(size=(2, 2, size, 8)).astype(np.float32) for name, size in sizes.items()
    }
    feeds["pad"] = rng.random((2, 1, 1, padded)) < 0.7
    feeds["pad"][..., 0] = True
    return feeds


def _check(
    body: str,
    spec: tuple[str, int, int],
    *,
    masked: bool,
    parts: dict[str, str] = _PLAIN,
    crossed: bool = False,
    text: str = _TEXT,
    lengths: tuple[int, ...] = (4, 7),
) -> None:
    model = _model(text, body, parts)
    fused = fuse(model)
    (match,) = fused.report.matches
    found = str(match.spec.causal), match.spec.window_left, match.spec.window_right
    assert found == spec
    assert ("attn_mask" in match.inputs) == masked
    past = 3 if parts is _PAST else 2
    for rows in lengths:
        columns = rows + 2 if crossed else rows
        inputs = _inputs(rows, columns, past, columns)
        (before,), (after,) = run(model, inputs), run(fused.model, inputs)
        np.testing.assert_allclose(after, before, atol=1e-5)


_CAUSAL = ("upper_left", -1, -1)
_NONE = ("none", -1, -1)
_BOUNDS = {
    "column <= row": ("keep = LessOrEqual(j, i)", _CAUSAL, False),
    "row >= column": ("keep = GreaterOrEqual(i, j)", _CAUSAL, False),
    "not column > row": ("above = Greater(j, i)\n  keep = Not(above)", _CAUSAL, False),
    "not row < column": ("above = Less(i, j)\n  keep = Not(above)", _CAUSAL, False),
    "column - 1 < row": ("less = Sub(j, one)\n  keep = Less(less, i)", _CAUSAL, False),
    "column <= row + 2": (
        "more = Add(i, two)\n  keep = LessOrEqual(j, more)", ("none", -1, 2), False,
    ),
    "column >= row": ("keep = GreaterOrEqual(j, i)", ("none", 0, -1), False),
    "column > row - 2": ("from = Sub(i, two)\n  keep = Greater(j, from)", ("none", 1, -1), False),
    "causal window": (
        ("from = Sub(i, two)\n  near = Greater(j, from)\n  old = LessOrEqual(j, i)\n"
        "  keep = And(near, old)"),
        ("upper_left", 1, -1), False,
    ),
    "causal and padding": (
        "old = LessOrEqual(j, i)\n  keep = And(old, pad)", _CAUSAL, True,
    ),
    "column < 2": ("keep = Less(j, two)", _NONE, True),
    "row < 2, or the first columns": (
        "few = Less(i, two)\n  first_two = Less(j, two)\n  keep = Or(few, first_two)", _NONE, True,
    ),
    "column < 2 and causal": (
        "few = Less(j, two)\n  old = LessOrEqual(j, i)\n  keep = And(few, old)", _CAUSAL, True,
    ),
    "diagonal": ("keep = Equal(j, i)", _NONE, True),
    "padding": ("keep = Identity(pad)", _NONE, True),
    "multiples": ("far = Mul(i, two)\n  keep = LessOrEqual(j, far)", _NONE, True),
    "or": ("old = LessOrEqual(j, i)\n  keep = Or(old, pad)", _NONE, True),
}  # fmt: skip


@pytest.mark.parametrize("name", _BOUNDS)
def test_bool_masks_of_comparisons(name: str) -> None:
    condition, spec, masked = _BOUNDS[name]
    body = f"{condition}\n  mask = Expand(keep, size)\n  {_ATTENTION}"
    if "pad" in condition:
        lead = "four = Concat<axis=0>(second, second, size)\n  "
        body = f"{condition}\n  {lead}mask = Expand(keep, four)\n  {_ATTENTION}"
    _check(body, spec, masked=masked)


@pytest.mark.parametrize(
    ("body", "spec", "masked"),
    [
        ("keep = LessOrEqual(j, i)", _CAUSAL, False),
        ("old = LessOrEqual(j, i)\n  new = Less(n_past, j)\n  keep = And(old, new)", _CAUSAL, True),
        ("keep = LessOrEqual(j, i0u)\n  i0u = Unsqueeze(i0, second)", _NONE, True),
    ],
    ids=["from the past", "only new columns", "from zero"],
)
def test_rows_behind_a_past_count_from_it(
    body: str, spec: tuple[str, int, int], masked: bool
) -> None:
    _check(f"{body}\n  mask = Expand(keep, size)\n  {_ATTENTION}", spec, masked=masked, parts=_PAST)


_DRAWN = {
    "causal": ("keep = LessOrEqual(j, i)", _CAUSAL, False),
    "window": ("keep = Greater(j, from)", ("none", 1, -1), False),
    "ahead": ("keep = Less(j, from)", _NONE, True),
    "after": ("keep = GreaterOrEqual(j, i)", ("none", 0, -1), False),
    "all": ("keep = Less(j, far)", _NONE, False),
    "diagonal": ("keep = Equal(j, i)", ("upper_left", 0, -1), False),
    "blocks": ("keep = Equal(jm, im)", _NONE, True),
}  # fmt: skip


@pytest.mark.parametrize("name", _DRAWN)
def test_masks_known_before_run_time(name: str) -> None:
    """At fixed sizes masks arrive as arrays."""
    condition, spec, masked = _DRAWN[name]
    lines = """from = Sub(i, two)
  far = Add(i, eight)
  eight = Mul(four, two)
  four = Mul(two, two)
  im = Mod(i, two)
  jm = Mod(j, two)
  mask = Expand(keep, size)"""
    text = _TEXT.replace("float[b,2,s,8] q", "float[b,2,7,8] q")
    text = text.replace("float[b,2,t,8] k", "float[b,2,7,8] k")
    body = f"{condition}\n  {lines}\n  {_ATTENTION}"
    _check(body, spec, masked=masked, text=text, lengths=(7,))


def test_the_only_row_is_row_zero() -> None:
    text = _TEXT.replace("float[b,2,s,8] q", "float[b,2,1,8] q")
    body = f"keep = Less(j, two)\n  mask = Expand(keep, size)\n  {_ATTENTION}"
    _check(body, ("none", -1, 1), masked=False, text=text, crossed=True, lengths=(1,))


# A mask over four rows, of which the twelve rows of the scores are digits.
_OF_DIGITS = _TEXT.replace("float[b,2,s,8] q", "float[b,2,12,8] q").replace(
    "float[b,2,t,8] k", "float[b,2,12,8] k"
).replace(
    "<float[8] g",
    "<int64 four = {4}, int64[2] three = {3,1}, int64[3] planes = {3,4,12},\n"
    " int64[2] flat = {12,12}, int64[5] split = {0,2,3,4,12},\n"
    " int64[4] whole = {0,2,12,12}, float[8] g",
).replace("BODY", """r0 = Range(zero, four, one)
  r = Unsqueeze(r0, second)
  near = LessOrEqual(j, r)
  BODY""")  # fmt: skip


@pytest.mark.parametrize(
    "mask",
    [
        "mask = Tile(near, three)",
        "rows = Tile(r, three)\n  mask = LessOrEqual(j, rows)",
        "few = Expand(near, planes)\n  mask = Reshape(few, flat)",
    ],
)
def test_digits_of_rows_are_no_rows(mask: str) -> None:
    _check(f"{mask}\n  {_ATTENTION}", _NONE, masked=True, text=_OF_DIGITS, lengths=(12,))


_SCORES = """turned = Transpose<perm=[0,1,3,2]>(all_k)
  product = MatMul(qn, turned)
  scaled = Mul(product, half)
  {masked}
  weights = Softmax<axis=-1>(scores)
  y = MatMul(weights, all_v)"""
_TRIANGLES = {
    "tril": ("tri = Trilu<upper=0>(ones)\n  hide = Equal(tri, no)", _CAUSAL, False),
    "triu of one": ("tri = Trilu<upper=1>(ones, one)\n  hide = Cast<to=9>(tri)", _CAUSAL, False),
    "tril of one": (
        "tri = Trilu<upper=0>(ones, one)\n  hide = Equal(tri, no)", ("none", -1, 1), False,
    ),
    "padding": ("hide = Not(pad)", _NONE, True),
    "both": (
        ("tri = Trilu<upper=0>(ones)\n  late = Equal(tri, no)\n  gap = Not(pad)\n"
        "  hide = Or(late, gap)"),
        _NONE, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("spelling", ["where", "added"])
@pytest.mark.parametrize("name", _TRIANGLES)
def test_triangles_over_scores(name: str, spelling: str) -> None:
    condition, spec, masked = _TRIANGLES[name]
    lines = f"ones = Expand(yes, size)\n  {condition}\n  "
    if spelling == "where":
        lines += "scores = Where(hide, low, scaled)"
    else:
        lines += "bias = Where(hide, low, no)\n  scores = Add(scaled, bias)"
    _check(_SCORES.format(masked=lines), spec, masked=masked)


def test_masks_of_digits_of_rows_are_not_fused() -> None:
    lines = """apart = Reshape(scaled, split)
  masked = Where(near, apart, low)
  scores = Reshape(masked, whole)"""
    model = _model(_OF_DIGITS, _SCORES.format(masked=lines), _PLAIN)
    assert not fuse(model).report.matches


def test_a_finite_window_over_longer_keys_stays_a_mask() -> None:
    """A row that a window leaves without keys is uniform in the graph and zero in the operator."""
    lines = "from = Sub(i, two)\n  hide = Greater(j, from)\n  scores = Where(hide, scaled, low)"
    _check(_SCORES.format(masked=lines), _NONE, masked=True, crossed=True)
