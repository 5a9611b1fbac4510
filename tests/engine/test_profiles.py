"""Optimization profiles out of what was given and what the model says."""

from __future__ import annotations

import pytest

from qkexport.domain import InputDomain, ModelDomain, SizeRange
from qkexport.engine.options import ShapeRange, parse_shapes
from qkexport.engine.profiles import complete_profiles
from qkexport.errors import UsageError


def _domain(*inputs: tuple[str, tuple[int | str, ...]], **sizes: SizeRange) -> ModelDomain:
    items = tuple(InputDomain(name, "int64", shape) for name, shape in inputs)
    symbols = {symbol: SizeRange() for item in items for symbol in item.symbols}
    return ModelDomain(items, {**symbols, **sizes})


DECODER = _domain(
    ("ids", ("batch", "seq")),
    ("past", ("batch", 2, "past_len", 16)),
    ("mask", ("batch", "past_len + seq")),
)


def test_a_static_model_has_no_profile() -> None:
    assert complete_profiles(_domain(("x", (2, 59))), ()) == ()


def test_defaults_agree_across_inputs_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    (profile,) = complete_profiles(DECODER, ())
    assert profile == {
        "ids": ShapeRange((1, 1), (1, 128), (8, 1024)),
        "past": ShapeRange((1, 2, 0, 16), (1, 2, 128, 16), (8, 2, 1024, 16)),
        "mask": ShapeRange((1, 1), (1, 256), (8, 2048)),
    }
    assert "past_len 0..1024 (best at 128)" in caplog.text


def test_a_given_shape_decides_over_the_same_symbol_elsewhere() -> None:
    (profile,) = complete_profiles(DECODER, parse_shapes(["ids=1x1,3x59,5x97"]))
    assert profile["past"] == ShapeRange((1, 2, 0, 16), (3, 2, 128, 16), (5, 2, 1024, 16))
    assert profile["mask"] == ShapeRange((1, 1), (3, 187), (5, 1121))


def test_shapes_that_say_all_leave_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    shapes = parse_shapes(["ids=1x1,3x59,5x97", "past=1x2x0x16,3x2x7x16,5x2x9x16"])
    complete_profiles(DECODER, shapes)
    assert caplog.text == ""


def test_bounds_and_example_of_the_model_win_over_defaults() -> None:
    domain = _domain(("x", (1, "seq")), seq=SizeRange(minimum=3, maximum=77, traced=59))
    (profile,) = complete_profiles(domain, ())
    assert profile == {"x": ShapeRange((1, 3), (1, 59), (1, 77))}


def test_an_example_beyond_the_default_widens_nothing() -> None:
    domain = _domain(("x", (1, "seq")), seq=SizeRange(traced=5000))
    (profile,) = complete_profiles(domain, ())
    assert profile["x"].optimum <= profile["x"].maximum


def test_each_given_profile_is_completed() -> None:
    profiles = complete_profiles(DECODER, parse_shapes(["ids=1x59", "ids=7x1"]))
    assert [profile["past"].optimum[0] for profile in profiles] == [1, 7]


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(UsageError, match=r"got 'idz'[\s\S]*ids, past, mask"):
        complete_profiles(DECODER, parse_shapes(["idz=1x1"]))


@pytest.mark.parametrize("text", ["ids=1", "past=1x3x0x16", "past=1x2x0x8,1x2x0x16,1x2x0x16"])
def test_a_shape_that_does_not_fit_the_input_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must fit"):
        complete_profiles(DECODER, parse_shapes([text]))


def test_two_ranges_for_one_symbol_are_refused() -> None:
    shapes = parse_shapes(["ids=1x1", "past=2x2x0x16"])
    with pytest.raises(UsageError, match="dimension batch one range"):
        complete_profiles(DECODER, shapes)
