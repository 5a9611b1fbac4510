"""Products of sizes: exact, and silent where nothing is known."""

from __future__ import annotations

import pytest

from qkexport.match.sizes import ONE, Size, product


@pytest.mark.parametrize(
    ("dim", "size"),
    [
        (7, Size(7)),
        ("seq", Size(1, ("seq",))),
        ("8*seq*batch", Size(8, ("batch", "seq"))),
        ("2*4", Size(8)),
        ("seq + 1", Size(1, ("seq + 1",))),
        ("(s24*s97)//s31", Size(1, ("(s24*s97)//s31",))),
    ],
)
def test_dimensions_are_products_or_one_name(dim: int | str, size: Size) -> None:
    assert Size.parse(dim) == size


def test_a_product_divides_by_its_factors() -> None:
    total = product([Size(6), Size(1, ("b",)), Size(1, ("s",))])
    assert total.divided_by(Size(2, ("s",))) == Size(3, ("b",))


@pytest.mark.parametrize("divisor", [Size(4), Size(1, ("t",)), Size(1, ("s", "s")), Size(0)])
def test_what_does_not_divide_for_every_size_does_not_divide(divisor: Size) -> None:
    assert Size(6, ("s",)).divided_by(divisor) is None


def test_names_are_written_out() -> None:
    size = Size(2, ("a", "b")).replaced({"a": Size(3, ("c",))})
    assert size == Size(6, ("b", "c"))


def test_known_is_a_number_without_names() -> None:
    assert (ONE.known, Size(5).known, Size(5, ("s",)).known) == (1, 5, None)
    assert str(Size(2, ("b", "s"))) == "2*b*s"
