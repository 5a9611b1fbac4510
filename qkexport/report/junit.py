"""JUnit XML, which every CI system reads: one test suite a candidate, one test a case."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from qkexport.proof.results import CandidateResult, CaseResult, ParityResult
from qkexport.report.terminal import where

# XML 1.0 has no way to write these.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(result: ParityResult) -> str:
    """The result as JUnit XML; a skipped backend is a skipped test, or a failed one if required."""
    root = ET.Element("testsuites", name="qkexport parity")
    for candidate in result.candidates:
        root.append(_suite(result, candidate))
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(result: ParityResult, candidate: CandidateResult) -> ET.Element:
    name = f"{candidate.name} [{candidate.backend}]"
    tests = [_case(name, case) for case in candidate.cases]
    if candidate.reason:
        tests.append(_not_run(result, candidate, name))
    if candidate.untested:
        outputs = ", ".join(candidate.untested)
        tests.append(_failed(name, "every output is tested", f"no case tests {outputs}", ""))
    suite = ET.Element("testsuite", name=_clean(name))
    properties = ET.SubElement(suite, "properties")
    for key, value in (("evidence", result.tier(candidate)), *result.environment.items()):
        ET.SubElement(properties, "property", name=_clean(key), value=_clean(value))
    suite.extend(tests)
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(test.find(tag) is not None for test in tests)))
    suite.set("tests", str(len(tests)))
    suite.set("time", f"{sum(case.seconds for case in candidate.cases):.6f}")
    return suite


def _case(suite: str, case: CaseResult) -> ET.Element:
    test = _test(suite, case.label)
    test.set("time", f"{case.seconds:.6f}")
    if case.error:
        error = ET.SubElement(test, "error", message=_clean(case.error.splitlines()[0]))
        error.text = _clean(case.error)
    elif not case:
        lines = [
            f"{output.name}: {output.status}, {output.detail}"
            + (f"; worst at {where(output)}" if output.worst is not None else "")
            for output in case.failures
        ]
        failure = ET.SubElement(test, "failure", message=_clean(lines[0] if lines else "no output"))
        failure.text = _clean("\n".join([*lines, f"replay: {case.replay}"]))
    return test


def _not_run(result: ParityResult, candidate: CandidateResult, suite: str) -> ET.Element:
    if candidate.skipped and candidate.backend not in result.absent:
        test = _test(suite, "runs")
        ET.SubElement(test, "skipped", message=_clean(candidate.reason.splitlines()[0]))
        return test
    return _failed(suite, "runs", candidate.reason.splitlines()[0], candidate.reason)


def _failed(suite: str, name: str, message: str, text: str) -> ET.Element:
    test = _test(suite, name)
    failure = ET.SubElement(test, "failure", message=_clean(message))
    failure.text = _clean(text)
    return test


def _test(suite: str, name: str) -> ET.Element:
    return ET.Element("testcase", classname=_clean(suite), name=_clean(name))


def _clean(text: str) -> str:
    return _ILLEGAL.sub("?", text)
