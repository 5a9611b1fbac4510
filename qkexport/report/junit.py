"""JUnit XML, which every CI system reads: one test suite a candidate, one test a case."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from qkexport.proof.results import CandidateResult, CaseResult, ParityResult
from qkexport.report import junit_xml
from qkexport.report.junit_xml import test_case, told
from qkexport.report.terminal import where


def junit_report(result: ParityResult) -> str:
    """The result as JUnit XML; a skipped backend is a skipped test, or a failed one if required."""
    suites = [_suite(result, candidate) for candidate in result.candidates]
    return junit_xml.document("qkexport parity", suites)


def _suite(result: ParityResult, candidate: CandidateResult) -> ET.Element:
    name = f"{candidate.name} [{candidate.backend}]"
    tests = [_case(name, case) for case in candidate.cases]
    if candidate.reason:
        tests.append(_not_run(result, candidate, name))
    if candidate.untested:
        outputs = ", ".join(candidate.untested)
        test = test_case(name, "every output is tested")
        tests.append(told(test, "failure", f"no case tests {outputs}"))
    properties = (("evidence", result.tier(candidate)), *result.environment.items())
    seconds = sum(case.seconds for case in candidate.cases)
    return junit_xml.suite(name, properties, tests, seconds)


def _case(suite: str, case: CaseResult) -> ET.Element:
    test = test_case(suite, case.label)
    test.set("time", f"{case.seconds:.6f}")
    if case.error:
        return told(test, "error", case.error.splitlines()[0], case.error)
    if case:
        return test
    lines = [
        f"{output.name}: {output.status}, {output.detail}"
        + (f"; worst at {where(output)}" if output.worst is not None else "")
        for output in case.failures
    ]
    text = "\n".join([*lines, f"replay: {case.replay}"])
    return told(test, "failure", lines[0] if lines else "no output", text)


def _not_run(result: ParityResult, candidate: CandidateResult, suite: str) -> ET.Element:
    test, message = test_case(suite, "runs"), candidate.reason.splitlines()[0]
    if candidate.skipped and candidate.backend not in result.absent:
        return told(test, "skipped", message)
    return told(test, "failure", message, candidate.reason)
