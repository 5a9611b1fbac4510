"""A self-test in files: survivors fail in all of them, and counts are those of the result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import junitparser
import pytest

from qkexport.proof.mutants import MUTANTS
from qkexport.proof.results import CandidateResult, CaseResult
from qkexport.proof.self_test import MutantResult, SelfTestResult
from qkexport.report.files import FORMATS, SELF_TEST_FORMATS, write_report
from qkexport.report.self_test_files import (
    self_test_html,
    self_test_json,
    self_test_junit,
    self_test_markdown,
    self_test_schema,
)

_SWAP, _MASK, _NORM, _EPSILON, _ROPE = list(MUTANTS.values())[:5]
CONTROL = CandidateResult("control", "torch", reason="a <reason>\nand more")


def _result() -> SelfTestResult:
    """One mutant of each verdict, and a control that did not run."""
    return SelfTestResult(
        "model<1>|a.pt2",
        CONTROL,
        (
            MutantResult(_SWAP, "attn_0", killed=True, by="odd normal: y mismatched", usage=812.0),
            MutantResult(_MASK, "attn_1", usage=0.4),
            MutantResult(_NORM, "attn_1", by="odd normal: no \x00", crashed=True),
            MutantResult(_EPSILON, "attn_1", equivalent=True),
            MutantResult(_ROPE),
        ),
        "quick",
        7,
        {"torch": "2.13.0", "processor": "x & y"},
        1.5,
    )


def test_the_document_fits_its_published_schema() -> None:
    schema, document = self_test_schema(), json.loads(self_test_json(_result()))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert document["kill_rate"] == pytest.approx(1 / 3)
    assert document["survivors"] == [_MASK.name, _NORM.name]
    document["mutants"][0]["verdict"] = "passed"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_junit_has_a_test_for_each_mutant_and_one_for_the_model() -> None:
    read = junitparser.JUnitXml.fromstring(self_test_junit(_result()).encode())
    assert (read.tests, read.failures, read.errors) == (6, 3, 0)
    read.update_statistics()
    assert (read.tests, read.failures, read.errors, read.skipped) == (6, 3, 0, 2)
    (suite,) = read
    verdicts = [[type(found).__name__ for found in case.result] for case in suite]
    assert verdicts == [["Failure"], [], ["Failure"], ["Failure"], ["Skipped"], ["Skipped"]]
    properties = {entry.name: entry.value for entry in suite.properties()}
    assert properties["kill rate"] == "0.3333"
    assert properties["processor"] == "x & y"


def test_junit_fails_when_no_mutant_fits() -> None:
    control = CandidateResult("control", "torch", (CaseResult("a", {}, 0, None),))
    result = SelfTestResult("m", control, (MutantResult(_ROPE),))
    read = junitparser.JUnitXml.fromstring(self_test_junit(result).encode())
    assert "no mutant changes" in self_test_junit(result)
    assert read.failures == 2


def test_markdown_has_one_row_a_mutant_and_keeps_its_table_whole() -> None:
    text = self_test_markdown(_result())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 5
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert "FAILED" in text.splitlines()[0]
    assert "1 of 3 mutants killed (33%)" in text
    assert "does not pass: FAILED, a <reason>" in text


def test_the_page_escapes_names_and_fetches_nothing() -> None:
    page = self_test_html(_result())
    assert "model&lt;1&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    assert page.count("survived") == 1
    assert "33 %" in page


def test_a_self_test_is_written_in_every_format_of_parity(tmp_path: Path) -> None:
    assert SELF_TEST_FORMATS.keys() == FORMATS.keys()
    for suffix, rendered in SELF_TEST_FORMATS.items():
        path = tmp_path / f"report{suffix}"
        write_report(_result(), path)
        assert path.read_text(encoding="utf-8") == rendered(_result())
