"""The tables of families and backends in the documentation, made from what the tests check.

python -m zoo.coverage README.md      from the folder of the tests: writes them between the marks
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from zoo import FAMILIES, backends
from zoo.family import Family

_BEGIN: Final = "<!-- {}: made by `python -m zoo.coverage ../README.md` in tests/ -->"
_END: Final = "<!-- end of {} -->"

_NORMS: Final = {"rms": "RMS", "layer": "LayerNorm", "l2": "L2"}
_AXES: Final = {"head": "head", "hidden": "all heads"}
_ROTARY: Final = {"none": "none", "after_norm": "after the norm", "before_norm": "before the norm"}


def table() -> str:
    """One line a family, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| family | norm | over | rotation | opsets | attention | fused |"
    yield "|---|---|---|---|---|---|---|"
    for family in sorted(FAMILIES, key=lambda family: (not family.fused, family.name)):
        cells = [family.name, *_form(family), *_exports(family), _result(family)]
        yield f"| {' | '.join(cells)} |"


def _form(family: Family) -> list[str]:
    if not family.fused:
        return ["", "", ""]
    fields = family.expected
    words = (("qk_norm", _NORMS), ("norm_axis", _AXES), ("rotary", _ROTARY))
    return [names[fields[field]] if field in fields else "by layer" for field, names in words]


def _exports(family: Family) -> list[str]:
    return [", ".join(map(str, family.opsets)), ", ".join(family.implementations)]


def _result(family: Family) -> str:
    """How many of the attentions with a norm fuse, and why the others do not."""
    found = family.fused + len(family.skipped)
    if not found:
        return "no norm on scores"
    reasons = "; ".join(sorted(set(family.skipped)))
    return f"{family.fused} of {found}" + (f": {reasons}" if reasons else "")


def with_tables(text: str) -> str:
    """A document with both tables between their marks.

    Raises:
        ValueError: The document does not have each mark once.
    """
    for name, lines in (("families", table()), ("backends", backends.table())):
        begin, end = _BEGIN.format(name), _END.format(name)
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{lines}\n{end}{after}"
    return text


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_tables(document.read_text()))
