"""The operator page, the spec and the signature name the same things in the same order."""

from __future__ import annotations

import dataclasses
import enum
import re
from pathlib import Path

import pytest

from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES
from qkexport.spec import SPELLING_ATTRIBUTES, AttentionSpec

PAGE = Path(__file__).parents[2] / "plugins" / "OPERATOR.md"


def _table(heading: str) -> list[list[str]]:
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_inputs_are_numbered_and_named_as_in_the_signature() -> None:
    rows = _table("Inputs")
    assert [row[0] for row in rows] == [str(index) for index in range(len(INPUT_NAMES))]
    assert tuple(row[1] for row in rows) == INPUT_NAMES


def test_outputs_are_named_as_in_the_signature() -> None:
    assert tuple(row[1] for row in _table("Outputs")) == OUTPUT_NAMES


def test_attributes_are_named_and_typed_as_the_spec_writes_them() -> None:
    written = AttentionSpec(num_heads=2, num_kv_heads=1, scale=1.0).to_attributes()
    kinds = {int: "INT", float: "FLOAT", str: "STRING"}
    expected = [(name, kinds[type(value)]) for name, value in written.items()]
    assert [(row[0], row[1]) for row in _table("Attributes")] == expected


@pytest.mark.parametrize("field", dataclasses.fields(AttentionSpec), ids=lambda f: f.name)
def test_string_values_on_the_page_are_those_the_spec_accepts(
    field: dataclasses.Field[object],
) -> None:
    values = {row[0]: row[2] for row in _table("Attributes")}[field.name]
    default = field.default
    if isinstance(default, enum.StrEnum):
        assert values.split(", ") == [str(member) for member in type(default)]
    else:
        assert values


def test_spelling_attributes_close_the_table() -> None:
    names = [row[0] for row in _table("Attributes")]
    assert names[-len(SPELLING_ATTRIBUTES) :] == list(SPELLING_ATTRIBUTES)
    assert re.fullmatch(r"1", _table("Attributes")[-2][2])
