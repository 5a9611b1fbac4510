"""Numbers and histograms as short text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_BARS: Final = " ▁▂▃▄▅▆▇█"


def number(x: float) -> str:
    """Three digits, and an exponent where it helps."""
    return f"{x:.3g}"


def percent(usage: float) -> str:
    """Error over allowance, for people."""
    if not math.isfinite(usage):
        return "beyond any"
    return f"{usage:.0%}" if usage < 100 else f"{number(usage)} x"


def sparkline(counts: Sequence[int]) -> str:
    """One character a bin, its height the logarithm of the count: a single element shows."""
    largest = math.log1p(max(counts, default=0)) or 1.0
    steps = [math.ceil(math.log1p(count) / largest * (len(_BARS) - 1)) for count in counts]
    return "".join(_BARS[step] for step in steps)
