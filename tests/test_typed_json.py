"""JSON becomes dataclasses, and nothing passes that their fields do not state."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qkexport.typed_json import from_json


@dataclasses.dataclass(frozen=True)
class Point:
    name: str
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Drawing:
    points: tuple[Point, ...]
    groups: tuple[dict[str, tuple[tuple[int, ...], ...]], ...]
    options: dict[str, Any]
    center: Point | None = None


GOOD: dict[str, Any] = {
    "points": [{"name": "a", "sizes": [1, -1]}, {"name": "", "sizes": []}],
    "groups": [{"x": [[1], [2, 3]]}],
    "options": {"any": [None, 1.5]},
}


def test_a_good_document_becomes_its_dataclass() -> None:
    found = from_json(Drawing, GOOD, "drawing")
    assert found == Drawing(
        (Point("a", (1, -1)), Point("", ())), ({"x": ((1,), (2, 3))},), {"any": [None, 1.5]}
    )
    point = {"name": "c", "sizes": [0]}
    assert from_json(Drawing, {**GOOD, "center": point}, "drawing").center == Point("c", (0,))
    assert from_json(Drawing, {**GOOD, "center": None}, "drawing").center is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"points": {}}, r"drawing\.points of type dict, not list"),
        ({"points": [None]}, r"drawing\.points\[0\] of type NoneType, not dict"),
        ({"points": [{"name": 1, "sizes": []}]}, r"points\[0\]\.name of type int, not str"),
        ({"points": [{"name": "a", "sizes": [True]}]}, r"sizes\[0\] of type bool, not int"),
        ({"points": [{"name": "a", "sizes": [1.0]}]}, r"sizes\[0\] of type float, not int"),
        ({"points": [{"name": "a", "sizes": "12"}]}, r"sizes of type str, not list"),
        ({"points": [{"name": "a"}]}, "missing 1 required positional argument: 'sizes'"),
        ({"groups": [{"x": [1]}]}, r"groups\[0\]\.x\[0\] of type int, not list"),
        ({"options": []}, r"drawing\.options of type list, not dict"),
        ({"center": 1}, r"drawing\.center of type int, not dict"),
        ({"colour": 1}, "drawing with an unknown field 'colour'"),
    ],
)
def test_what_a_field_does_not_state_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        from_json(Drawing, {**GOOD, **change}, "drawing")
