"""The tables of plugins/OPERATOR.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

PAGE = Path(__file__).parents[2] / "plugins" / "OPERATOR.md"


@dataclasses.dataclass(frozen=True)
class AttributeRow:
    """One attribute as the page has it.

    Attributes:
        name: Of the attribute.
        kind: INT, FLOAT or STRING.
        values: What it may be, in words.
    """

    name: str
    kind: str
    values: str


def table(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def attribute_table() -> list[AttributeRow]:
    return [AttributeRow(*row) for row in table("Attributes")]


def input_names() -> tuple[str, ...]:
    return tuple(row[1] for row in table("Inputs"))


def output_names() -> tuple[str, ...]:
    return tuple(row[1] for row in table("Outputs"))
