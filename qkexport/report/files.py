"""Writes a result to a file, in the format that the file's name asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from qkexport.errors import UsageError
from qkexport.proof.results import ParityResult
from qkexport.proof.self_test import SelfTestResult
from qkexport.report.html import html_report
from qkexport.report.json import json_report
from qkexport.report.junit import junit_report
from qkexport.report.markdown import markdown_report
from qkexport.report.self_test_files import (
    self_test_html,
    self_test_json,
    self_test_junit,
    self_test_markdown,
)

FORMATS: Final[Mapping[str, Callable[[ParityResult], str]]] = {
    ".html": html_report,
    ".json": json_report,
    ".md": markdown_report,
    ".xml": junit_report,
}
SELF_TEST_FORMATS: Final[Mapping[str, Callable[[SelfTestResult], str]]] = {
    ".html": self_test_html,
    ".json": self_test_json,
    ".md": self_test_markdown,
    ".xml": self_test_junit,
}


def check_report_paths(paths: Iterable[Path]) -> None:
    """Refuses a report that could not be written, before anything is run.

    Raises:
        UsageError: The suffix is unknown or the folder does not exist.
    """
    for path in paths:
        if path.suffix not in FORMATS:
            message = f"--report must end in {', '.join(FORMATS)}, got {path}."
            raise UsageError(message)
        if not path.parent.is_dir():
            raise UsageError(f"--report must be in an existing folder, got {path}.")


def write_report(result: ParityResult | SelfTestResult, path: Path) -> None:
    """Writes a report whole or not at all."""
    if isinstance(result, SelfTestResult):
        text = SELF_TEST_FORMATS[path.suffix](result)
    else:
        text = FORMATS[path.suffix](result)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
