"""A self-test as files, in the formats of `--report`: each mutant is a test that must be killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from qkexport.proof.self_test import MutantResult, SelfTestResult
from qkexport.report import junit_xml
from qkexport.report.heat_map import HEAT_STEPS
from qkexport.report.junit_xml import test_case, told
from qkexport.report.text import percent
from qkexport.templates import template_environment

SELF_TEST_SCHEMA_PATH: Final = Path(__file__).with_name("self_test.schema.json")
_TONES: Final = {"killed": "good", "survived": "bad", "crashed": "bad"}
_MARKS: Final = {"good": "✅", "bad": "❌", "warn": "⚠️"}
NOTHING_FITS: Final = "no mutant changes what this model computes"


def self_test_schema() -> dict[str, Any]:
    """The published JSON schema of the document."""
    schema: dict[str, Any] = json.loads(SELF_TEST_SCHEMA_PATH.read_text(encoding="utf-8"))
    return schema


def self_test_json(result: SelfTestResult) -> str:
    """The document as text."""
    return json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"


def self_test_junit(result: SelfTestResult) -> str:
    """One test a mutant: one that survives or crashes fails, one that fits nowhere is skipped."""
    name = f"{result.model} [self-test]"
    control = test_case(name, "the model itself passes")
    if not result.control:
        told(control, "failure", _why_not(result), result.control.reason)
    tests = [control, *(_mutant(name, entry) for entry in result.mutants)]
    if not result.applied:
        tests.append(told(test_case(name, "a mutant fits"), "failure", NOTHING_FITS))
    properties = (("kill rate", f"{result.kill_rate:.4f}"), *result.environment.items())
    suite = junit_xml.suite(name, properties, tests, result.seconds)
    return junit_xml.document("qkexport parity --self-test", [suite])


def _mutant(suite: str, entry: MutantResult) -> ET.Element:
    test = test_case(suite, f"{entry.mutant.name}{f' in {entry.node}' if entry.node else ''}")
    if not entry.applies:
        return told(test, "skipped", entry.verdict)
    if entry.killed:
        return test
    message = f"{entry.verdict}: {entry.mutant.description}"
    return told(test, "failure", message, entry.by or f"{percent(entry.usage)} of what is allowed")


def self_test_markdown(result: SelfTestResult) -> str:
    """A verdict and one row a mutant."""
    lines = [
        f"## Self-test of parity on `{result.model}`: {'passed' if result else 'FAILED'}",
        "",
        kill_rate(result),
        *(
            ["", f"The model itself does not pass: {_why_not(result)}"]
            if not result.control
            else []
        ),
        "",
        "| | mutant | what is wrong | in | noticed by |",
        "|---|---|---|---|---|",
    ]
    for entry in result.mutants:
        mark = _MARKS[tone(entry)]
        cells = (
            f"{mark} {entry.verdict}",
            entry.mutant.name,
            entry.mutant.description,
            f"`{entry.node}`" if entry.node else "",
            entry.by,
        )
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    versions = ", ".join(f"{name} {version}" for name, version in result.environment.items())
    return "\n".join([*lines, "", f"Suite {result.suite}, seed {result.seed}. {versions}", ""])


def self_test_html(result: SelfTestResult) -> str:
    """One page: the kill rate, and what noticed each mutant."""
    environment = template_environment("qkexport.report")
    environment.globals["heat_steps"] = HEAT_STEPS  # the style sheet is that of parity
    environment.filters |= {"percent": percent, "tone": tone}
    template = environment.get_template("self_test.html.j2")
    page: str = template.render(result=result, kill_rate=kill_rate(result), why=_why_not(result))
    return page


def kill_rate(result: SelfTestResult) -> str:
    """The sentence that sums a self-test up."""
    killed = len(result.applied) - len(result.survivors)
    rate = f"{killed} of {len(result.applied)} mutants killed ({result.kill_rate:.0%})"
    return rate if result.applied else f"{rate}: {NOTHING_FITS}"


def tone(entry: MutantResult) -> str:
    """`good`, `bad` or `warn`; mutants that prove nothing are the last."""
    return _TONES.get(entry.verdict, "warn")


def _why_not(result: SelfTestResult) -> str:
    """Why the model itself does not pass."""
    failed = [f"{case.label} fails" for case in result.control.cases if not case]
    untested = [f"no case tests {name}" for name in result.control.untested]
    reasons = [*result.control.reason.splitlines()[:1], *failed, *untested]
    return f"{result.control.verdict}, {'; '.join(reasons)}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
