"""A report in one HTML file: no scripts, nothing fetched, readable when printed."""

from __future__ import annotations

import math
from typing import Any

from qkexport.compare import OutputComparison
from qkexport.compare.kinds import KIND_NAMES, KindTable
from qkexport.compare.ulp import HISTOGRAM_LABELS
from qkexport.proof.results import ParityResult
from qkexport.report.terminal import where
from qkexport.report.text import number


def html_report(result: ParityResult) -> str:
    """The result as an HTML page."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("qkexport.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "bars": histogram_bars,
        "heat": heat_cells,
        "kinds": kind_rows,
        "where": where,
    }
    page: str = environment.get_template("parity.html.j2").render(
        result=result, labels=HISTOGRAM_LABELS
    )
    return page


def percent(usage: float) -> str:
    """Error over allowance, for people."""
    if not math.isfinite(usage):
        return "beyond any"
    return f"{usage:.0%}" if usage < 100 else f"{number(usage)} x"


def histogram_bars(output: OutputComparison) -> list[dict[str, Any]]:
    """Bars of the ulp histogram: height in 0..1 by the logarithm of the count."""
    largest = math.log1p(max(output.ulps, default=0)) or 1.0
    return [
        {"label": label, "count": count, "height": round(math.log1p(count) / largest, 4)}
        for label, count in zip(HISTOGRAM_LABELS, output.ulps, strict=False)
    ]


def heat_cells(output: OutputComparison) -> list[list[dict[str, Any]]]:
    """The heat map, `[heads or batch][positions]`: colour and usage of each cell."""
    return [
        [{"color": _color(usage), "usage": percent(usage)} for usage in row] for row in output.heat
    ]


def _color(usage: float) -> str:
    """Blue to yellow up to the limit, red beyond it."""
    if usage > 1:
        return "#c0182b"
    share = max(0.0, usage)
    return f"hsl({220 - 170 * share:.0f} 70% {92 - 30 * share:.0f}%)"


def kind_rows(kinds: KindTable) -> list[tuple[str, tuple[int, ...]]]:
    """The table of kinds by name, or nothing when all is finite."""
    if all(
        not count for i, row in enumerate(kinds.counts) for j, count in enumerate(row) if i or j
    ):
        return []
    return list(zip(KIND_NAMES, kinds.counts, strict=True))
