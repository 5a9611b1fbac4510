"""The operator page, the spec and the signature name the same things in the same order."""

from __future__ import annotations

import dataclasses
import enum
import re

import pytest
from operator_page import table

from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES
from qkexport.spec import SPELLING_ATTRIBUTES, AttentionSpec


def test_inputs_are_numbered_and_named_as_in_the_signature() -> None:
    rows = table("Inputs")
    assert [row[0] for row in rows] == [str(index) for index in range(len(INPUT_NAMES))]
    assert tuple(row[1] for row in rows) == INPUT_NAMES


def test_outputs_are_named_as_in_the_signature() -> None:
    assert tuple(row[1] for row in table("Outputs")) == OUTPUT_NAMES


def test_attributes_are_named_and_typed_as_the_spec_writes_them() -> None:
    written = AttentionSpec(num_heads=2, num_kv_heads=1, scale=1.0).to_attributes()
    kinds = {int: "INT", float: "FLOAT", str: "STRING"}
    expected = [(name, kinds[type(value)]) for name, value in written.items()]
    assert [(row[0], row[1]) for row in table("Attributes")] == expected


@pytest.mark.parametrize("field", dataclasses.fields(AttentionSpec), ids=lambda f: f.name)
def test_string_values_on_the_page_are_those_the_spec_accepts(
    field: dataclasses.Field[object],
) -> None:
    values = {row[0]: row[2] for row in table("Attributes")}[field.name]
    default = field.default
    if isinstance(default, enum.StrEnum):
        assert values.split(", ") == [str(member) for member in type(default)]
    else:
        assert values


def test_spelling_attributes_close_thetable() -> None:
    names = [row[0] for row in table("Attributes")]
    assert names[-len(SPELLING_ATTRIBUTES) :] == list(SPELLING_ATTRIBUTES)
    assert re.fullmatch(r"1", table("Attributes")[-2][2])
