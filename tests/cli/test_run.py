"""The command line's contract: exit codes, one JSON document, errors that help."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import click
import pytest

from qkexport.cli import command as commands
from qkexport.cli.command import Command, group
from qkexport.cli.outcome import Outcome
from qkexport.cli.run import run
from qkexport.errors import BackendUnavailableError, LoadError, VerificationError


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A command named `convert` that does what the test puts into this dict."""
    behaviour: dict[str, Any] = {}

    @click.command("convert", cls=Command)
    @click.option("--form")
    def convert(form: str | None) -> Outcome:
        print("from a library")  # noqa: T201
        logging.getLogger("qkexport.test").info("a stage")
        if "raises" in behaviour:
            raise behaviour["raises"]
        document = behaviour.get("document", {"form": form})
        return Outcome(
            behaviour.get("passed", True),
            document,
            lambda console: console.print(behaviour.get("text", "done [3,4]")),
        )

    monkeypatch.setattr(group, "get_command", lambda _context, _name: convert)
    return behaviour


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ({}, 0),
        ({"passed": False}, 1),
        ({"raises": VerificationError("Model must match, got 3.")}, 1),
        ({"raises": LoadError("Source must exist, got x.")}, 2),
        ({"raises": click.UsageError("no")}, 2),
        ({"raises": BackendUnavailableError("Backend must exist, got none.")}, 3),
        ({"raises": ZeroDivisionError("oops")}, 1),
        ({"raises": KeyboardInterrupt()}, 130),
        ({"raises": BrokenPipeError()}, 1),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_every_end_has_its_exit_code(
    answer: dict[str, Any], behaviour: dict[str, Any], code: int, options: list[str]
) -> None:
    answer.update(behaviour)
    assert run(["convert", *options]) == code


def test_json_is_one_document_and_nothing_else(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", "--json", "--form", "fused"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "schema_version": 1,
        "command": "convert",
        "form": "fused",
    }
    assert "from a library" in captured.err


def test_an_error_is_a_document_too(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answer["raises"] = LoadError("Source must exist, got x.", note="accepted: y", hint="do z")
    run(["convert", "--json"])
    document = _json(capsys)
    assert document["exit_code"] == 2
    assert document["error"] == {
        "type": "LoadError",
        "message": "Source must exist, got x.",
        "note": "accepted: y",
        "hint": "do z",
    }


@pytest.mark.parametrize("arguments", [["convert", "--json", "--fomr", "x"], ["--json", "convrt"]])
def test_a_usage_error_before_any_command_runs_is_a_document(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert _json(capsys)["exit_code"] == 2


def test_numbers_that_json_does_not_know_are_not_printed(answer: dict[str, Any]) -> None:
    answer["document"] = {"error": float("nan")}
    assert run(["convert", "--json"]) == 1


def test_people_get_text_with_its_brackets_on_stdout(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["convert"])
    assert capsys.readouterr().out == "done [3,4]\n"


def test_an_error_gives_note_and_hint_and_no_traceback(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answer["raises"] = LoadError("Source must exist, got x.", note="accepted: y", hint="do z")
    run(["convert"])
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[-3:] == ["Error: Source must exist, got x.", "Note: accepted: y", "Hint: do z"]
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_unexpected_error_is_called_internal(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answer["raises"] = ZeroDivisionError("oops")
    run(["convert"])
    text = capsys.readouterr().err
    assert "Internal error: ZeroDivisionError: oops" in text
    assert "--debug" in text
    assert "Traceback" not in text


def test_debug_shows_the_traceback(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answer["raises"] = LoadError("Source must exist, got x.")
    run(["convert", "--debug"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "logged"), [([], False), (["-v"], True), (["-q"], False)])
def test_stages_are_logged_to_stderr_when_asked(
    answer: dict[str, Any],
    options: list[str],
    logged: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["convert", *options])
    captured = capsys.readouterr()
    assert ("a stage" in captured.err) is logged
    assert "a stage" not in captured.out


def test_logging_is_as_it_was_afterwards(answer: dict[str, Any]) -> None:
    logger = logging.getLogger("qkexport")
    before = (logger.level, list(logger.handlers))
    run(["convert", "-vv"])
    assert (logger.level, list(logger.handlers)) == before


@pytest.mark.parametrize(("typed", "meant"), [("convrt", "convert"), ("inspct", "inspect")])
def test_a_misspelled_command_is_answered_with_the_right_one(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([typed]) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_a_misspelled_option_is_answered_with_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["convert", "--fomr", "fused"]) == 2
    assert "--form" in capsys.readouterr().err


def test_help_lists_every_command_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in commands.COMMANDS)


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_help_and_the_common_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--json", "--verbose", "--quiet", "--debug"))


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_shows_examples_that_parse(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run([name, "--help"])
    text = capsys.readouterr().out
    examples = [line.split() for line in text.splitlines()]
    examples = [words for words in examples if words[:2] == ["qkexport", name]]
    assert examples
    for words in examples:
        context = click.Context(group, info_name="qkexport")
        command = group.get_command(context, name)
        assert command is not None
        command.make_context(name, words[2:], parent=context)


def test_without_a_command_the_help_is_shown_and_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 2
    text = capsys.readouterr().err
    assert text.startswith("Usage: qkexport")
    assert "Error" not in text


def test_shells_can_complete_commands_and_options() -> None:
    for words, expected in (("qkexport con", "convert"), ("qkexport convert --fo", "--form")):
        completed = _run_with(
            "from qkexport.cli import main; main()",
            _QKEXPORT_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1),
        )
        assert completed.split() == [f"plain,{expected}"]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("qkexport, version ")


_HEAVY = ("torch", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "numpy", "rich", "transformers")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["convert", "--help"], ["--version"], ["convrt"]]
)
def test_help_and_usage_errors_import_no_framework(arguments: list[str]) -> None:
    code = (
        "import sys; from qkexport.cli.run import run; "
        f"run({arguments}); print(*(n for n in {_HEAVY} if n in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1:] in ([], [""]), done.stderr


def test_no_color_is_respected(answer: dict[str, Any]) -> None:
    code = "from qkexport.cli.run import _console; _console().print('x', style='bold red')"
    colored = _run_with(code, FORCE_COLOR="1")
    plain = _run_with(code, FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b[1;31m" in colored
    assert "31m" not in plain


def _run_with(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    return done.stdout
