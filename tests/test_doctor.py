"""The doctor: what works, what is absent and what dies gets its verdict, and a way out."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

import qkexport
from qkexport.cli.run import run
from qkexport.diagnosis import doctor as doctor_module
from qkexport.diagnosis import known_answer, probes
from qkexport.diagnosis.capability import (
    CAPABILITIES,
    Capability,
    Diagnosis,
    DoctorReport,
    State,
    install_command,
)
from qkexport.diagnosis.doctor import diagnose, doctor
from qkexport.errors import UsageError
from qkexport.reference import reference_attention

NAMES = [capability.name for capability in CAPABILITIES]


def _capability(name: str, **changes: object) -> Capability:
    fields = {"purpose": "p", "packages": (), "modules": (), "fix": "do this", "timeout": 60.0}
    return Capability(name, **{**fields, **changes})  # type: ignore[arg-type]


def test_the_known_answer_is_that_of_the_reference() -> None:
    found = reference_attention(known_answer.SPEC, known_answer.known_inputs())["output"]
    expected = torch.tensor([known_answer.ANSWER], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("wrong", [1e-3, torch.nan])
def test_a_wrong_answer_is_noticed(wrong: float) -> None:
    answer = torch.tensor([known_answer.ANSWER])
    assert "came out right" in known_answer.check_answer(answer)
    answer[0, 1, 0] += wrong
    with pytest.raises(ArithmeticError, match="a known attention came out as"):
        known_answer.check_answer(answer)


def test_every_capability_has_a_probe_and_a_way_to_install_its_modules() -> None:
    assert set(NAMES) == set(probes.PROBES)
    for capability in CAPABILITIES:
        assert capability.fix
        assert install_command(capability.modules).startswith("pip install ")


def test_what_works_is_available_with_its_version_and_answer() -> None:
    (diagnosis,) = doctor(["pytorch"]).diagnoses
    assert diagnosis.state is State.AVAILABLE
    assert "came out right" in diagnosis.detail
    assert diagnosis.versions == {"torch": torch.__version__}
    assert diagnosis.fix == ""


def test_what_is_not_installed_is_missing_and_the_command_is_told() -> None:
    (diagnosis,) = diagnose([_capability("x", modules=("json", "tensorrt"))])
    if diagnosis.state is State.MISSING:
        assert diagnosis.detail == "not installed: tensorrt"
        assert diagnosis.fix == "pip install tensorrt"


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import os; os.kill(os.getpid(), 6)", "was killed by signal 6"),
        ("import sys; sys.exit('library does not fit')", "library does not fit"),
        ("print('hello'); print([1])", "ended without an answer"),
        ("import time; time.sleep(60)", "was killed by signal 9"),
    ],
    ids=["crash", "exit", "nonsense", "hang"],
)
def test_where_the_probes_cannot_even_start_all_are_broken_and_the_doctor_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, detail: str
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setattr(doctor_module, "_START_SECONDS", 1.0 if "sleep" in code else 60.0)
    diagnoses = diagnose([_capability("pytorch", timeout=0.0), _capability("hf", timeout=0.0)])
    for diagnosis in diagnoses:
        assert diagnosis.state is State.BROKEN
        assert detail in diagnosis.detail
        assert diagnosis.fix == "do this"


def _report(**states: State) -> DoctorReport:
    diagnoses = [Diagnosis(_capability(name), state, "", {}) for name, state in states.items()]
    return DoctorReport(tuple(diagnoses), "3.11", "linux")


def test_health_means_that_models_convert_and_nothing_is_broken() -> None:
    assert _report(convert=State.AVAILABLE, hf=State.MISSING)
    assert not _report(convert=State.MISSING)
    assert not _report(convert=State.AVAILABLE, hf=State.BROKEN)
    assert _report(hf=State.AVAILABLE)  # convert was not asked about


def test_an_unknown_capability_is_refused() -> None:
    with pytest.raises(UsageError, match="Capability must be a known one, got 'convrt'") as caught:
        doctor(["convrt"])
    assert caught.value.hint == "did you mean 'convert'?"


def test_the_command_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "pytorch", "ort-stock", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["healthy"] is True
    assert [entry["state"] for entry in document["capabilities"]] == ["available"] * 2


def test_the_command_prints_a_way_out_of_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Diagnosis(_capability("convert"), State.BROKEN, "it died", {"x": "1"}, "reinstall")
    monkeypatch.setattr(doctor_module, "diagnose", lambda *_: (broken,))
    assert run(["doctor", "convert"]) == 1
    text = capsys.readouterr().out
    assert "!! convert" in text
    assert "it died (x 1)" in text
    assert "fix: reinstall" in text


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has click and qkexport, and nothing else."""
    import click

    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    for package in (click, qkexport):
        (site / str(package.__name__)).symlink_to(Path(str(package.__file__)).parent)
    return folder / "bin" / "python"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_it_works_where_only_click_is_installed(bare_python: Path, options: list[str]) -> None:
    done = subprocess.run(
        [bare_python, "-m", "qkexport", "doctor", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == ""
    if options:
        states = {entry["state"] for entry in json.loads(done.stdout)["capabilities"]}
        assert states == {"missing"}
    else:
        assert "not installed: torch, numpy, onnx, onnx_ir, onnxscript" in done.stdout
        assert "fix: pip install 'torch>=2.13,<2.14' numpy onnx onnx-ir onnxscript" in done.stdout


def test_installed_capabilities_are_available(caplog: pytest.LogCaptureFixture) -> None:
    modules = {"convert": "torch", "ort-stock": "onnxruntime", "hf": "transformers"}
    modules["tensorrt-rtx"] = "tensorrt_rtx"
    installed = [name for name, module in modules.items() if importlib.util.find_spec(module)]
    with caplog.at_level(logging.INFO, logger="qkexport"):
        for diagnosis in doctor(installed).diagnoses:
            assert diagnosis.state is State.AVAILABLE, diagnosis.detail
    shares = [record.__dict__["share"] for record in caplog.records]
    assert shares == [(i + 1) / len(installed) for i in range(len(installed))]
    tried = {str(record.args[0]) for record in caplog.records if isinstance(record.args, tuple)}
    assert tried == set(installed)
