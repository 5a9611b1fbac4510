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
