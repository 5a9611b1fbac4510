"""What is said about elements of integer and bool tensors holds for every one, at every size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from integer_graphs import SIZES, Drawing, draw
from onnx_text import read_model

from qkexport.match.affine import Affine, Element
from qkexport.match.facts import Facts
from qkexport.match.offsets import Offset

_KIND = {"int": Affine, "bool": bool}


def _sizes_of_names(facts: Facts, drawing: Drawing, place: int) -> dict[str, int]:
    """Every name of a size, as a number; a name that would be two numbers is an error."""
    found: dict[str, int] = {}
    for name, value in _values(facts).items():
        sizes = facts.sizes(value)
        if sizes is None:
            continue
        shape = drawing.arrays[name][place].shape
        assert len(sizes) == len(shape), name
        for size, dim in zip(sizes, shape, strict=True):
            if size.known is not None:
                assert size.known == dim, name
            elif size.count == 1 and len(size.symbols) == 1:
                assert found.setdefault(size.symbols[0], dim) == dim, (name, size)
    return found


def _values(facts: Facts) -> dict[str, ir.Value]:
    values = [*facts.graph.inputs, *(node.outputs[0] for node in facts.graph)]
    return {value.name or "": value for value in values}


def _offset(offset: Offset, names: dict[str, int]) -> int | None:
    total = offset.number
    for symbols, count in offset.sizes:
        if any(symbol not in names for symbol in symbols):
            return None
        total += count * int(np.prod([names[symbol] for symbol in symbols]))
    return total


def _said(
    element: Element, shape: tuple[int, ...], names: dict[str, int]
) -> npt.NDArray[np.generic] | None:
    if isinstance(element, bool):
        return np.full(shape, element)
    start = _offset(element.offset, names)
    if start is None:
        return None
    assert len(element.slopes) == len(shape)
    array = np.full(shape, start, np.int64)
    for slope, index in zip(element.slopes, np.indices(shape), strict=True):
        array += slope * index
    return array


def _check(seed: int, *, typed: bool) -> Iterator[str]:
    """Compares what is known with what was computed; yields the kinds of what is known."""
    drawing = draw(seed)
    proto = drawing.model()
    if typed:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    facts = Facts(ir.from_proto(proto).graph)
    known = {name: facts.elements.of(value) for name, value in _values(facts).items()}
    for place in range(len(SIZES)):
        names = _sizes_of_names(facts, drawing, place)
        for name, element in known.items():
            computed = drawing.arrays[name][place]
            said = None if element is None else _said(element, computed.shape, names)
            if said is not None:
                np.testing.assert_array_equal(computed, said, err_msg=f"{seed}: {name} {element}")
    for element in known.values():
        if element is not None:
            yield next(kind for kind, of in _KIND.items() if isinstance(element, of))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), typed=st.booleans())
def test_what_is_known_of_a_random_graph_is_what_it_computes(seed: int, typed: bool) -> None:
    list(_check(seed, typed=typed))


@pytest.mark.nightly
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), typed=st.booleans())
def test_what_is_known_of_many_random_graphs_is_what_they_compute(seed: int, typed: bool) -> None:
    list(_check(seed, typed=typed))


def test_random_graphs_hold_much_that_can_be_known() -> None:
    kinds = [kind for seed in range(20) for kind in _check(seed, typed=True)]
    assert kinds.count("int") > 200
    assert kinds.count("bool") > 40


_TEXT = """<ir_version: 10, opset_import: ["" : 20]>
numbers (int64[b,s] data, bool[b,s] flags) => (int64[1] y)
<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 behind = {-1}, int64[1] at0 = {0},
 int64[1] at1 = {1}, int64[1] at2 = {2}, int64[1] last = {-1}, int64[1] end = {9223372036854775807},
 int64[2] around = {-1,0}, int64[2] wide = {1,2}, int64[2] flat = {1,-1}>
{
  rows = Shape<start=0, end=1>(data)
  columns = Shape<start=1, end=2>(data)
  n = Squeeze(columns)
  m = Squeeze(rows)
  i = Range(zero, m, one)
  j = Range(zero, n, one)
  before = Sub(j, one)
  column = Unsqueeze(i, at1)
  plane = Add(column, j)
  y = Identity(at0)
  result = BODY
}"""
_S = frozenset({(("s",), 1)})
_KNOWN: dict[str, Element | None] = {
    "Add(j, n)": Affine(Offset(0, _S), (1,)),
    "Sub(j, before)": Affine(Offset(1), (0,)),
    "Mul(two, plane)": Affine(Offset(0), (2, 2)),
    "Mul(plane, plane)": None,
    "Mul(j, n)": None,
    "Neg(plane)": Affine(Offset(0), (-1, -1)),
    "Add(data, zero)": None,
    "Less(j, n)": True,
    "Less(before, n)": True,
    "LessOrEqual(n, j)": False,
    "Less(j, m)": None,
    "Less(zero, j)": None,
    "GreaterOrEqual(j, zero)": True,
    "Greater(j, before)": True,
    "Equal(j, before)": False,
    "Equal(j, j)": True,
    "Equal(plane, j)": None,
    "Equal(data, data)": None,
    "Less(n, zero)": False,
    "Less(zero, n)": None,
    "Slice(j, at1, end)": Affine(Offset(1), (1,)),
    "Slice(j, last, end)": None,
    "Slice(j, at1, end, at0, at2)": Affine(Offset(1), (2,)),
    "Slice(j, last, at0, at0, last)": None,
    "Slice(plane, columns, end, at1)": Affine(Offset(0, _S), (1, 1)),
    "Concat<axis=0>(last, j)": Affine(Offset(-1), (1,)),
    "Concat<axis=0>(at0, j)": None,
    "Concat<axis=0>(j, columns)": Affine(Offset(0), (1,)),
    "Concat<axis=0>(j, rows)": None,
    "Concat<axis=0>(j, j)": None,
    "Concat<axis=0>(at0, at1, at2)": Affine(Offset(0), (1,)),
    "Concat<axis=0>(at0, at2, at1)": None,
    "Gather<axis=1>(plane, j)": Affine(Offset(0), (1, 1)),
    "Gather<axis=0>(j, behind)": None,
    "Gather<axis=0>(j, around)": None,
    "Gather<axis=0>(j, before)": None,
    "Gather<axis=0>(j, wide)": Affine(Offset(1), (1,)),
    "CumSum(j, zero)": None,
    "CumSum(at2, zero)": Affine(Offset(2), (0,)),
    "Reshape(plane, last)": None,
    "Reshape(j, flat)": Affine(Offset(0), (0, 1)),
    "Transpose(plane)": Affine(Offset(0), (1, 1)),
    "Cast<to=6>(columns)": Affine(Offset(0, _S), (0,)),
    "Unsqueeze(again, at0)\n  byte = Cast<to=2>(n)\n  again = Cast<to=7>(byte)": None,
    "Unsqueeze(again, at0)\n  half = Cast<to=10>(n)\n  again = Cast<to=7>(half)": None,
    "Gather<axis=1>(both, at0)\n  across = Unsqueeze(columns, at1)\n  also = Unsqueeze(at2, at1)"
    "\n  both = Concat<axis=0>(across, also)": None,
    "Max(j, before)": Affine(Offset(0), (1,)),
    "Min(j, before)": Affine(Offset(-1), (1,)),
    "Max(i, one)": None,
    "Mod(j, two)": None,
}


@pytest.mark.parametrize("body", _KNOWN)
def test_what_is_known_of_one_operator(body: str) -> None:
    facts = Facts(read_model(_TEXT.replace("BODY", body)).graph)
    assert facts.elements.of(_values(facts)["result"]) == _KNOWN[body]


_SUMS = {
    "": Affine(Offset(2), (2, 0)),
    "exclusive=1": Affine(Offset(0), (2, 0)),
    "reverse=1": None,
}


@pytest.mark.parametrize("flags", _SUMS)
def test_running_sums_of_one_number(flags: str) -> None:
    body = f"CumSum<{flags}>(twos, zero)" if flags else "CumSum(twos, zero)"
    text = _TEXT.replace("BODY", f"{body}\n  size = Shape(data)\n  twos = Expand(two, size)")
    facts = Facts(read_model(text).graph)
    assert facts.elements.of(_values(facts)["result"]) == _SUMS[flags]


_POINTS: dict[str, Element | None] = {
    "column, j": Affine(Offset(0), (0, 1)),
    "j, column": Affine(Offset(0), (1, 0)),
    "column, before": None,
}


@pytest.mark.parametrize("places", _POINTS)
def test_points_of_a_table_of_column_numbers(places: str) -> None:
    first, second = places.split(", ")
    body = f"""GatherND(table, points)
  size = Shape(data)
  table = Expand(j, size)
  to_row = Expand({first}, size)
  to_column = Expand({second}, size)
  first = Unsqueeze(to_row, at2)
  second = Unsqueeze(to_column, at2)
  points = Concat<axis=2>(first, second)"""
    facts = Facts(read_model(_TEXT.replace("BODY", body)).graph)
    assert facts.elements.of(_values(facts)["result"]) == _POINTS[places]
