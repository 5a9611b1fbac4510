"""What an engine of TensorRT-RTX says about itself, against what was asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from engine_models import needs_rtx, save_fused

import qkexport
from qkexport import BuildOptions
from qkexport.engine.bindings import Flavour, load_bindings
from qkexport.engine.checks import check_engine
from qkexport.engine.compile import Compiled, Job
from qkexport.engine.header import HEADER_BYTES, EngineHeader, parse_header
from qkexport.engine.result import Check
from qkexport.engine.stream import EngineFile
from qkexport.engine.targets import known_targets

pytestmark = needs_rtx


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("engine")
    options = BuildOptions(targets=("sm_89",))
    qkexport.build(save_fused(folder / "m.onnx"), folder / "m.engine", options=options)
    return (folder / "m.engine").read_bytes()


def test_the_header_states_size_version_and_targets(plan: bytes) -> None:
    version = load_bindings(Flavour.TENSORRT_RTX).__version__
    assert parse_header(plan) == EngineHeader(len(plan), version, ("sm_89",))


@pytest.mark.parametrize("place", [0, 28, 39])
def test_a_header_of_another_kind_says_nothing(plan: bytes, place: int) -> None:
    head = bytearray(plan[:HEADER_BYTES])
    head[place] ^= 0x80
    assert parse_header(bytes(head)) is None


def test_a_header_that_is_cut_off_says_nothing(plan: bytes) -> None:
    assert parse_header(plan[: HEADER_BYTES - 1]) is None


def _compiled(plan: bytes, folder: Path) -> Compiled:
    path = folder / "compiled.engine"
    path.write_bytes(plan)
    return Compiled(EngineFile(path, "", len(plan)), (), (), 7)


def _header_check(plan: bytes, folder: Path, targets: tuple[str, ...]) -> Check:
    compiled = _compiled(plan, folder)
    options = BuildOptions(targets=targets)
    job = Job(Flavour.TENSORRT_RTX, Path("m.onnx"), "m.onnx", options)
    bindings = load_bindings(Flavour.TENSORRT_RTX)
    return next(c for c in check_engine(bindings, compiled, job, 0) if c.name == "header")


def test_an_engine_for_what_was_asked_passes(plan: bytes, tmp_path: Path) -> None:
    assert _header_check(plan, tmp_path, ("sm_89",)).passed is True


@pytest.mark.parametrize("targets", [("sm_120",), ("sm_89", "sm_120"), ("sm_80+",)])
def test_an_engine_for_other_gpus_than_asked_fails(
    plan: bytes, tmp_path: Path, targets: tuple[str, ...]
) -> None:
    assert _header_check(plan, tmp_path, targets).passed is False


def test_an_engine_of_another_size_than_it_says_fails(plan: bytes, tmp_path: Path) -> None:
    assert _header_check(plan + b"\0", tmp_path, ("sm_89",)).passed is False


def test_an_unknown_layout_is_not_checked(plan: bytes, tmp_path: Path) -> None:
    assert _header_check(b"\0" * len(plan), tmp_path, ("sm_89",)).passed is None


def test_a_network_without_layers_fails(plan: bytes, tmp_path: Path) -> None:
    compiled = dataclasses.replace(_compiled(plan, tmp_path), num_layers=0)
    job = Job(Flavour.TENSORRT_RTX, Path("m"), "m", BuildOptions(targets=("sm_89",)))
    checks = check_engine(load_bindings(Flavour.TENSORRT_RTX), compiled, job, 0)
    assert next(check for check in checks if check.name == "layers").passed is False


def test_every_known_target_has_a_bit(plan: bytes) -> None:
    assert known_targets() == ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
