"""The tables of families and backends in the README are what the tests draw from."""

from __future__ import annotations

from pathlib import Path

from zoo import FAMILIES
from zoo.coverage import table, with_tables

_README = Path(__file__).parents[2] / "README.md"


def test_the_readme_shows_the_rows_that_are_tested() -> None:
    text = _README.read_text()
    assert with_tables(text) == text, "run `python -m zoo.coverage ../README.md` in tests/"


def test_every_family_has_one_line() -> None:
    lines = table().splitlines()[2:]
    assert sorted(line.split("|")[1].strip() for line in lines) == sorted(
        family.name for family in FAMILIES
    )
