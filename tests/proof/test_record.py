"""What a parity run proved stands in the manifests afterwards, and nothing else does."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from pathlib import Path

import pytest
import torch
from engine_models import WIDTH, needs_rtx, save_fused
from fake_gpu import FakeCudart, FakeEngine, fake_bindings

import qkexport
from qkexport import BuildOptions, ParitySettings
from qkexport.engine.device import Gpu
from qkexport.engine.options import parse_shapes
from qkexport.engine.verify import verify_files
from qkexport.export import to_form
from qkexport.manifest import ParityEvidence, manifest_path, read_manifest, write_manifest
from qkexport.run import tensorrt as runner_module

pytestmark = needs_rtx

OPTIONS = BuildOptions(targets=("sm_89",), profiles=parse_shapes(["x=1x1x32,2x59x32,3x97x32"]))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    qkexport.build(save_fused(folder / "m.onnx"), folder / "m.engine", options=OPTIONS)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A model and its engine, in a folder of their own."""
    for file in built.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path


class Copies(torch.nn.Module):
    """What the fake engine computes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


@pytest.fixture
def reference() -> torch.export.ExportedProgram:
    axes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("seq", min=1)}
    x = torch.zeros(2, 8, WIDTH, dtype=torch.float16)
    return torch.export.export(Copies(), (x,), dynamic_shapes={"x": axes})


@pytest.fixture
def gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """A fake GPU on which the engine copies its input."""
    cudart = FakeCudart()
    shapes = tuple(read_manifest(folder / "m.engine.json").profiles[0]["x"])
    engine = FakeEngine(cudart, [(shapes[0], shapes[1], shapes[2])])
    bindings = fake_bindings(read_manifest(folder / "m.engine.json").version, engine)
    monkeypatch.setattr(runner_module, "find_gpu", lambda: Gpu("a fake GPU", "sm_89"))
    monkeypatch.setattr(runner_module, "load_bindings", lambda flavour: bindings)
    monkeypatch.setattr(runner_module, "load_cudart", lambda: cudart)
    return engine


def _evidence(engine: Path) -> ParityEvidence:
    return verify_files(engine).parity


def test_an_engine_is_built_until_parity_matched_it(
    folder: Path, gpu: FakeEngine, reference: torch.export.ExportedProgram
) -> None:
    engine = folder / "m.engine"
    assert _evidence(engine).tier == "BUILT"
    result = qkexport.parity(reference, [engine], seed=5)
    assert result
    evidence = _evidence(engine)
    assert (evidence.tier, evidence.backend) == ("MATCHED", "tensorrt-rtx")
    assert (evidence.suite, evidence.seed) == ("quick", 5)
    assert evidence.reference == result.reference
    assert "within the derived tolerance" in evidence.reason
    assert "on a fake GPU (sm_89)" in evidence.reason
    assert str(evidence).startswith("MATCHED(tensorrt-rtx, suite quick, seed 5): ")
    assert sorted(path.name for path in folder.iterdir()) == ["m.engine", "m.engine.json", "m.onnx"]


def test_every_size_of_the_run_fits_the_engine(
    folder: Path, gpu: FakeEngine, reference: torch.export.ExportedProgram
) -> None:
    result = qkexport.parity(reference, [folder / "m.engine"], suite="full")
    assert result
    shapes = {case.shapes["x"] for item in result.candidates for case in item.cases}
    assert {(1, 1, WIDTH), (2, 97, WIDTH)} <= shapes
    assert max(shape[0] for shape in shapes) <= 3
    assert max(shape[1] for shape in shapes) <= 97


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_mismatch_takes_back_what_was_matched(
    folder: Path, gpu: FakeEngine, reference: torch.export.ExportedProgram
) -> None:
    engine = folder / "m.engine"
    assert qkexport.parity(reference, [engine])
    other = torch.export.export(Doubles(), (torch.zeros(2, 8, WIDTH, dtype=torch.float16),))
    assert not qkexport.parity(other, [engine])
    evidence = _evidence(engine)
    assert evidence.tier == "RAN"
    assert evidence.reason.startswith("MISMATCHED on tensorrt-rtx: case ")
    assert "is outside its tolerance" in evidence.reason


def test_an_engine_that_does_not_run_is_only_built(
    folder: Path, gpu: FakeEngine, reference: torch.export.ExportedProgram
) -> None:
    gpu.failing = True
    assert not qkexport.parity(reference, [folder / "m.engine"])
    evidence = _evidence(folder / "m.engine")
    assert evidence.tier == "BUILT"
    assert evidence.reason.startswith("FAILED on tensorrt-rtx: case ")


def test_a_tolerance_of_ones_own_is_told(
    folder: Path, gpu: FakeEngine, reference: torch.export.ExportedProgram
) -> None:
    settings = ParitySettings(rtol=0.5, atol=0.25, allow_constant=frozenset({"y"}))
    assert qkexport.parity(reference, [folder / "m.engine"], settings=settings)
    reason = _evidence(folder / "m.engine").reason
    assert "within rtol 0.5, atol 0.25, y left out" in reason


def test_without_a_gpu_the_manifest_stays_as_it_is(
    folder: Path, reference: torch.export.ExportedProgram
) -> None:
    before = manifest_path(folder / "m.engine").read_bytes()
    assert not qkexport.parity(reference, [folder / "m.engine"])
    assert manifest_path(folder / "m.engine").read_bytes() == before


def test_the_model_of_an_engine_is_proven_apart_from_the_engine(folder: Path) -> None:
    import onnx_ir as ir

    portable = to_form(ir.load(folder / "m.onnx"), "portable")
    ir.save(portable, folder / "m.onnx")
    qkexport.build(folder / "m.onnx", folder / "m.engine", options=OPTIONS)
    assert verify_files(folder / "m.engine").onnx_parity is None
    assert qkexport.parity(folder / "m.onnx", [folder / "m.onnx"], backends=["ort-stock"], seed=3)
    manifest = verify_files(folder / "m.engine")
    assert manifest.parity.tier == "BUILT"
    assert manifest.onnx_parity is not None
    assert manifest.onnx_parity.tier == "MATCHED"
    assert (manifest.onnx_parity.backend, manifest.onnx_parity.seed) == ("ort-stock", 3)


def test_an_engine_of_another_model_is_not_told(folder: Path) -> None:
    import onnx_ir as ir

    ir.save(to_form(ir.load(folder / "m.onnx"), "portable"), folder / "m.onnx")  # other bytes
    assert qkexport.parity(folder / "m.onnx", [folder / "m.onnx"], backends=["ort-stock"])
    assert verify_files(folder / "m.engine").onnx_parity is None


def test_an_engine_that_is_built_anew_meanwhile_is_not_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from qkexport.engine.evidence import places_of

    engine = folder / "m.engine"
    (place,) = places_of(engine)
    manifest = read_manifest(manifest_path(engine))
    record = dataclasses.replace(manifest.engine, sha256="0" * 64)
    write_manifest(engine, dataclasses.replace(manifest, engine=record))
    place.put(ParityEvidence("MATCHED", "in every case"))
    assert read_manifest(manifest_path(engine)).parity.tier == "BUILT"
    assert "is of another build now" in caplog.text


def test_a_manifest_that_cannot_be_written_is_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qkexport.engine import evidence as module

    def refuse(engine: Path, manifest: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(module, "write_manifest", refuse)
    (place,) = module.places_of(folder / "m.engine")
    with caplog.at_level(logging.WARNING):
        place.put(ParityEvidence("MATCHED", "in every case"))
    assert "read-only file system" in caplog.text


def test_the_same_engine_built_again_keeps_its_evidence(
    folder: Path, gpu: FakeEngine, reference: torch.export.ExportedProgram, tmp_path: Path
) -> None:
    engine, cache = folder / "m.engine", tmp_path / "cache"
    assert qkexport.parity(reference, [engine])
    matched = _evidence(engine)
    for _ in range(2):  # built, then out of the cache
        assert qkexport.build(folder / "m.onnx", engine, options=OPTIONS, cache=cache)
        assert _evidence(engine) == matched
    other = dataclasses.replace(OPTIONS, targets=("sm_120",))
    assert qkexport.build(folder / "m.onnx", engine, options=other, cache=cache)
    assert _evidence(engine).tier == "BUILT"
