"""Every report says what the result says, in its own language, whatever the names hold."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import junitparser
import pytest
from parity_results import eventful_result
from rich.console import Console

from qkexport.errors import UsageError
from qkexport.report.files import FORMATS, check_report_paths, write_report
from qkexport.report.html import html_report
from qkexport.report.json import json_report, parity_schema
from qkexport.report.junit import junit_report
from qkexport.report.markdown import markdown_report
from qkexport.report.terminal import print_parity
from qkexport.report.text import sparkline

RESULT = eventful_result()


def test_the_document_fits_its_published_schema() -> None:
    schema = parity_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json_report(RESULT)), schema)


def test_the_schema_refuses_what_is_not_a_report() -> None:
    document = json.loads(json_report(RESULT))
    document["candidates"][0]["verdict"] = "PASSED"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, parity_schema())


def test_the_document_says_what_failed_and_where() -> None:
    document = json.loads(json_report(RESULT))
    assert not document["passed"]
    verdicts = [candidate["verdict"] for candidate in document["candidates"]]
    assert verdicts == ["MATCHED", "FAILED", "FAILED", "SKIPPED"]
    evidence = [candidate["evidence"] for candidate in document["candidates"]]
    assert evidence == ["MATCHED", "RAN", "CONVERTED", "CONVERTED"]
    logits, other = document["candidates"][1]["cases"][0]["outputs"]
    assert logits["status"] == "mismatched"
    assert logits["worst"]["index"] == [0, 1, 2]
    assert logits["argmax"]["rows"] == 10
    assert other["status"] == "non-finite"
    assert other["worst"]["candidate"] == "inf"
    assert other["worst"]["head"] == 2
    assert other["non_finite"]["met"] == {"finite->+inf": 1}


def test_junit_counts_what_ci_systems_count() -> None:
    root = ET.fromstring(junit_report(RESULT))
    counts = [
        tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped"))
        for suite in root.iter("testsuite")
    ]
    assert counts == [
        ("1", "0", "0", "0"),
        ("3", "2", "1", "0"),
        ("1", "1", "0", "0"),
        ("1", "0", "0", "1"),
    ]
    failure = root.find(".//failure")
    assert failure is not None
    assert "worst at [0, 1, 2]" in (failure.text or "")
    assert "replay: failures/b.pt" in (failure.text or "")


# What Jenkins and others allow, from their published schema: attributes by element, and children.
_JUNIT = {
    "testsuites": ({"name", "tests", "failures", "errors", "time", "disabled"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": (
        {"name", "classname", "time", "file", "line"},
        {"skipped", "failure", "error", "properties", "system-out", "system-err"},
    ),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message", "type"}, set()),
}


def test_junit_holds_nothing_that_readers_do_not_know() -> None:
    root = ET.fromstring(junit_report(RESULT))
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = _JUNIT[element.tag]
        assert set(element.attrib) <= attributes
        assert {child.tag for child in element} <= children
    for suite in root:
        assert [child.tag for child in suite].index("properties") == 0
        assert all(float(case.get("time", "0")) >= 0 for case in suite.iter("testcase"))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("6", "3", "1")


def test_a_parser_of_others_reads_junit_and_counts_the_same() -> None:
    read = junitparser.JUnitXml.fromstring(junit_report(RESULT).encode())
    assert (read.tests, read.failures, read.errors) == (6, 3, 1)
    written = [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in read]
    read.update_statistics()  # counts what became of the cases
    assert (read.tests, read.failures, read.errors, read.skipped) == (6, 3, 1, 1)
    assert [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in read] == written


def test_junit_says_what_the_evidence_is() -> None:
    root = ET.fromstring(junit_report(RESULT))
    found = [prop.get("value") for prop in root.iter("property") if prop.get("name") == "evidence"]
    assert found == [
        "MATCHED(ort-stock, suite quick, seed 3)",
        "RAN(ort-stock)",
        "CONVERTED",
        "CONVERTED",
    ]


def test_junit_calls_a_required_backend_that_is_absent_a_failure() -> None:
    required = dataclasses.replace(RESULT, absent=("plugin",))
    suites = list(ET.fromstring(junit_report(required)).iter("testsuite"))
    assert (suites[-1].get("failures"), suites[-1].get("skipped")) == ("1", "0")


def test_markdown_has_one_row_a_candidate_and_keeps_its_table_whole() -> None:
    text = markdown_report(RESULT)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(RESULT.candidates)
    unescaped = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert len(set(unescaped)) == 1
    assert "FAILED" in text.splitlines()[0]
    assert "error 9, allowed" in text
    assert "note: bf16 emulated" in text


class _Page(html.parser.HTMLParser):
    """Checks that tags close, and collects what a browser would fetch or run."""

    VOID = ("meta", "link", "img", "br", "hr", "input", "rect", "line")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "script" or any(name.startswith("on") for name, _ in attrs):
            self.fetched.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag
        elif self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def _page() -> _Page:
    page = _Page()
    page.feed(html_report(RESULT))
    page.close()
    return page


def test_the_page_is_well_formed_and_fetches_and_runs_nothing() -> None:
    page = _page()
    assert page.open == []
    assert page.fetched == []
    assert "http" not in html_report(RESULT)


def test_the_page_says_what_the_result_says() -> None:
    text = " ".join(_page().text.split())
    for expected in (
        "Parity with model<1>.pt2",
        "FAILED",
        "one <normal>",
        "<y> & 'z'",
        "Node `n` must run",
        "qkexport parity --replay failures/b.pt",
        "No case tests aux",
        "2 x PyTorch's float32 error",
        "largest normal: too long",
        "x & y",
    ):
        assert expected in text


def test_the_page_draws_a_cell_for_each_head_and_position() -> None:
    page = html_report(RESULT)
    places = re.findall(r"<title>batch entry (\d), positions? (\d)(?: to (\d))?: ", page)
    drawn = [
        (int(row), position)
        for row, first, last in places
        for position in range(int(first), int(last or first) + 1)
    ]
    assert sorted(drawn) == sorted(
        [(row, position) for row in range(2) for position in range(5)] * 2
    )


def test_the_page_marks_a_cell_for_each_way_to_be_wrong() -> None:
    page = html_report(RESULT)
    beyond = re.findall(r'class="hx" x="[^>]*><title>([^<]*) of the allowance', page)
    assert beyond == ["batch entry 0, position 1: 1.14e+07 x", "head 2, position 3: beyond any"]


def test_the_terminal_names_verdicts_places_and_reasons() -> None:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        print_parity(RESULT, console)
    text = console.export_text()
    for expected in (
        "MATCHED a.onnx on ort-stock",
        "FAILED b|b.onnx on ort-stock",
        "SKIPPED d.onnx on plugin",
        "heads beyond their limit",
        "worst at [0, 1, 2]: ",
        "UNTESTED aux",
        "replay: qkexport parity --replay failures/b.pt",
        "not tried, the reference refuses it: largest normal: too long",
    ):
        assert expected in text


def test_a_single_count_shows_in_a_sparkline() -> None:
    assert sparkline([1_000_000, 0, 1]) == "█ ▁"
    assert sparkline([]) == ""


@pytest.mark.parametrize("suffix", FORMATS)
def test_reports_are_written_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report{suffix}"
    write_report(RESULT, path)
    assert path.read_text(encoding="utf-8") == FORMATS[suffix](RESULT)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_report_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--report must end in \.html, \.json, \.md, \.xml, got"):
        check_report_paths([tmp_path / "report.pdf"])
    with pytest.raises(UsageError, match="--report must be in an existing folder"):
        check_report_paths([tmp_path / "no" / "report.md"])
