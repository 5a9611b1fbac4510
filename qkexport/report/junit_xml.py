"""The elements of JUnit XML, filled so that every reader takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

# XML 1.0 has no way to write these.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(name: str, suites: Iterable[ET.Element]) -> str:
    """Suites as a whole file; their counts are added up."""
    root = ET.Element("testsuites", name=clean(name))
    root.extend(suites)
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def suite(
    name: str, properties: Iterable[tuple[str, str]], tests: list[ET.Element], seconds: float
) -> ET.Element:
    """A suite with its tests counted by what became of them."""
    element = ET.Element("testsuite", name=clean(name))
    listed = ET.SubElement(element, "properties")
    for key, value in properties:
        ET.SubElement(listed, "property", name=clean(key), value=clean(value))
    element.extend(tests)
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        element.set(attribute, str(sum(test.find(tag) is not None for test in tests)))
    element.set("tests", str(len(tests)))
    element.set("time", f"{seconds:.6f}")
    return element


def test_case(suite_name: str, name: str) -> ET.Element:
    """A test that passed, until `told` says otherwise."""
    return ET.Element("testcase", classname=clean(suite_name), name=clean(name))


def told(test: ET.Element, tag: str, message: str, text: str = "") -> ET.Element:
    """The test with an `error`, a `failure` or `skipped`."""
    child = ET.SubElement(test, tag, message=clean(message))
    if text:
        child.text = clean(text)
    return test


def clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _ILLEGAL.sub("?", text)
