"""What a model accepts: sizes, symbols, ranges, and arithmetic between them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from qkexport.domain import InputDomain, ModelDomain, SizeRange, onnx_domain, with_traced_sizes
from qkexport.errors import UsageError
from qkexport.size_cases import size_cases


def _domain(**symbols: SizeRange) -> ModelDomain:
    names = tuple(symbols)
    return ModelDomain((InputDomain("x", "float32", names),), symbols)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [(59, 59), ("n", 7), ("2*n + m", 17), ("(n*m)//2", 10), ("n % m", 1), ("n - m", 4)],
)
def test_shapes_are_arithmetic_on_symbols(dim: int | str, expected: int) -> None:
    assert InputDomain("x", "float32", (dim,)).shape_at({"n": 7, "m": 3}) == (expected,)


def test_a_name_that_is_no_arithmetic_is_one_symbol() -> None:
    domain = InputDomain("x", "float32", ("batch size", "f(n)"))
    assert domain.symbols == ("batch size", "f(n)")
    assert domain.shape_at({"batch size": 3, "f(n)": 5}) == (3, 5)


def test_symbols_of_an_expression_are_found() -> None:
    assert InputDomain("x", "float32", ("past + seq", 4, "seq")).symbols == ("past", "seq")


def test_unnamed_axes_of_a_graph_get_names_of_their_own() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None, None]))
    graph = ir.Graph([value], [], nodes=[], opset_imports={"": 20})
    domain = onnx_domain(ir.Model(graph, ir_version=10))
    assert domain.inputs[0].shape == ("x_0", "x_1")
    assert domain.inputs[0].dtype == "float32"


def test_given_inputs_fix_the_traced_sizes() -> None:
    domain = with_traced_sizes(_domain(n=SizeRange(), m=SizeRange()), {"x": (59, 97)})
    assert {name: span.traced for name, span in domain.symbols.items()} == {"n": 59, "m": 97}


def test_a_given_shape_that_does_not_fit_is_refused() -> None:
    domain = ModelDomain((InputDomain("x", "float32", ("n", 4)),), {"n": SizeRange()})
    for shape in ((3, 5), (3,)):
        with pytest.raises(UsageError, match=r"x must be \['n', 4\], got"):
            with_traced_sizes(domain, {"x": shape})
    with pytest.raises(UsageError, match="no input of that name, got 'y'"):
        with_traced_sizes(domain, {"y": (3, 4)})


def test_sizes_are_clamped_to_their_range() -> None:
    span = SizeRange(4, 9)
    assert [span.clamp(size) for size in (1, 4, 7, 9, 59)] == [4, 4, 7, 9, 9]


def test_a_fixed_model_has_one_case() -> None:
    domain = ModelDomain((InputDomain("x", "float32", (2, 3)),), {})
    assert [case.label for case in size_cases(domain)] == ["traced"]


def test_a_dynamic_model_is_tried_at_its_own_sizes_at_one_and_at_odd_ones() -> None:
    cases = size_cases(_domain(batch=SizeRange(traced=2), seq=SizeRange(traced=16)))
    assert [case.label for case in cases] == ["traced", "one", "odd"]
    assert cases[0].candidates == ({"batch": 2, "seq": 16},)
    assert cases[1].candidates == ({"batch": 1, "seq": 1},)
    assert cases[2].candidates[0] == {"batch": 3, "seq": 49}
    assert cases[2].candidates[1] == {"batch": 4, "seq": 32}


def test_ranges_bound_every_case() -> None:
    cases = size_cases(_domain(seq=SizeRange(3, 40, traced=16)))
    tried = [sizes["seq"] for case in cases for sizes in case.candidates]
    assert min(tried) == 3
    assert max(tried) == 39, "the odd case is odd even at the end of a range"


def test_a_range_of_one_size_has_one_case() -> None:
    cases = size_cases(_domain(seq=SizeRange(16, 16, traced=16)))
    assert [case.label for case in cases] == ["traced"]


def test_axes_of_equal_size_stay_equal() -> None:
    sizes = _domain(a=SizeRange(traced=5), b=SizeRange(traced=5), c=SizeRange(traced=6))
    for case in size_cases(sizes):
        for candidate in case.candidates:
            assert candidate["a"] == candidate["b"]


def test_sums_of_axes_can_hold_in_a_doubled_case() -> None:
    sizes = _domain(past=SizeRange(traced=3), new=SizeRange(traced=5), total=SizeRange(traced=8))
    candidates = [c for case in size_cases(sizes) for c in case.candidates]
    fitting = [c for c in candidates if c["past"] + c["new"] == c["total"]]
    assert {"past": 6, "new": 10, "total": 16} in fitting


def test_sizes_that_nobody_gave_are_small_and_unlike() -> None:
    domain = ModelDomain(
        (InputDomain("x", "float32", ("n", "s")),), {"n": SizeRange(), "s": SizeRange()}
    )
    assert size_cases(domain)[0].candidates[0] == {"n": 2, "s": 8}
