"""The fixture `assert_parity`, which pytest finds when qkexport is installed.

It loads no framework until it is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from qkexport.proof.parity import ParityResult


@pytest.fixture
def assert_parity(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> Callable[..., ParityResult]:
    """`qkexport.assert_parity` that saves failing inputs in the test's folder.

    The verdict of each candidate becomes a property of the test in JUnit reports.
    """
    from qkexport.proof.assertion import failure_text
    from qkexport.proof.parity import ParitySettings, parity

    def check(reference: Any, *candidates: str | Path, **options: Any) -> ParityResult:
        __tracebackhide__ = True
        settings = options.pop("settings", ParitySettings())
        if settings.failures is None:
            settings = dataclasses.replace(settings, failures=tmp_path / "parity-failures")
        options = {"layers": True, **options}
        result = parity(reference, candidates, settings=settings, **options)
        for candidate in result.candidates:
            name = f"parity {Path(candidate.name).name} on {candidate.backend}"
            record_property(name, str(candidate.verdict))
        if not result:
            pytest.fail(failure_text(result), pytrace=False)
        return result

    return check
