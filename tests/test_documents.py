"""Documents are true: their links, paths, commands, options and targets exist; the tour runs."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from document_steps import ROOT, environment_in, steps_of

from qkexport import __version__
from qkexport.cli.command import COMMANDS, group
from qkexport.cli.reference import reference

DOCUMENTS = sorted(
    path
    for folder, depth in ((ROOT, "*.md"), (ROOT / "plugins", "*.md"), (ROOT / "samples", "**/*.md"))
    for path in folder.glob(depth)
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n)+)", re.M | re.S)
_SPAN = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:tests|samples|plugins|qkexport|include|cmake)/[\w./-]*\w/?")
_INSTALLED = {"qkexport/lib"}  # in a wheel, not in the repository
_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").exists(), reason="the documents are not beside the tests"
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _code_lines(path: Path) -> Iterator[str]:
    """Lines of code blocks, continued ones joined."""
    for match in _CODE.finditer(path.read_text()):
        kind, fenced, indented = match.groups()
        if kind not in ("text", "python", "cpp", "yaml"):
            text = (fenced or indented or "").replace("\\\n", " ")
            yield from (line.strip() for line in text.splitlines())


def _commands(path: Path) -> list[str]:
    """Whole command lines of qkexport in code blocks."""
    lines = (line.split("  #")[0].split(" # ")[0].split("||")[0] for line in _code_lines(path))
    return [line.strip() for line in lines if line.startswith("qkexport ")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in _LINK.findall(document.read_text()):
        place, _, anchor = target.partition("#")
        if place.startswith(("http:", "https:", "mailto:")):
            assert place.startswith("https://")
            continue
        file = (document.parent / place).resolve() if place else document
        assert file.exists(), target
        if anchor:
            assert anchor in _anchors(file), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_path_that_is_named_exists(document: Path) -> None:
    roots = [ROOT, document.parent, ROOT / "plugins", ROOT / "plugins" / "include"]
    for span in _SPAN.findall(document.read_text()):
        path = _PATH.fullmatch(span)
        if path and span not in _INSTALLED:
            assert any((root / span).exists() for root in roots), span


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_command_line_parses(document: Path) -> None:
    context = click.Context(group, info_name="qkexport")
    for line in _commands(document):
        words = shlex.split(line)[1:]
        if words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, line
        command = group.get_command(context, words[0])
        assert command is not None
        command.make_context(words[0], words[1:], parent=context)


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_options_in_the_text_belong_to_the_command(document: Path) -> None:
    context = click.Context(group, info_name="qkexport")
    for span in _SPAN.findall(document.read_text()):
        words = span.split()
        if len(words) < 2 or words[0] != "qkexport" or words[1] not in COMMANDS:
            continue
        command = group.get_command(context, words[1])
        assert command is not None
        known = {name for parameter in command.params for name in parameter.opts}
        for word in words[2:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, span


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_make_targets_and_extras_exist(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.M)
    assert set(named) <= targets
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"qkexport\[([\w,]+)\]", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_python_in_documents_is_python(document: Path) -> None:
    for match in _CODE.finditer(document.read_text()):
        if match[1] == "python":
            ast.parse(match[2])


def test_the_page_of_the_command_line_is_what_the_commands_say() -> None:
    page = ROOT / "samples" / "CLI.md"
    assert page.read_text() == reference(), "python -m qkexport.cli.reference > samples/CLI.md"


def test_the_version_is_stated_once() -> None:
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None
    assert cited[1] == __version__
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_changelog_keeps_the_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.M)[0] == "[Unreleased]"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= kinds


def _shape(line: str) -> str:
    """A line of output without its numbers and the width of its columns."""
    return " ".join(_NUMBER.sub("#", line).split())


def test_the_tour_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    folder = tmp_path / "tour"
    shutil.copytree(ROOT / "samples" / "01_convert_a_model", folder)
    environment = environment_in(tmp_path)
    for command, shown in steps_of(ROOT / "README.md"):
        if "tensorrt-rtx" in command and not _has_rtx():
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        printed = _shape(" ".join(done.stdout.split("\n")))
        for line in shown:
            assert _shape(line) in printed, line


def _has_rtx() -> bool:
    from qkexport.engine.bindings import Flavour, is_installed

    return is_installed(Flavour.TENSORRT_RTX)


def test_the_readme_python_runs(tmp_path: Path) -> None:
    blocks = [m[2] for m in _CODE.finditer((ROOT / "README.md").read_text()) if m[1] == "python"]
    assert blocks
    shutil.copy(ROOT / "samples" / "01_convert_a_model" / "model.py", tmp_path)
    for block in blocks:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", block]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=environment)
