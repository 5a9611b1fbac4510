"""On a GPU, auto builds both kinds of attention, measures them and keeps the faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from engine_models import needs_rtx, save_fused, save_native

import qkexport
from qkexport import BuildOptions, BuildResult
from qkexport.engine.fastest import Build, keep_fastest
from qkexport.engine.options import AttentionChoice
from qkexport.engine.verify import verify_files
from qkexport.errors import BuildError
from qkexport.manifest import manifest_path

pytestmark = needs_rtx

AUTO, PLUGIN, NATIVE = AttentionChoice


def _builder(model: Path, failing: Mapping[AttentionChoice, str] | None = None) -> Build:
    """Builds with RTX whatever attention is asked for, but notes which one it was."""

    def build(choice: AttentionChoice, path: Path) -> BuildResult:
        if failing and choice in failing:
            raise BuildError(failing[choice])
        workspace = 1 << (30 if choice is PLUGIN else 31)
        options = BuildOptions(targets=("sm_89",), workspace=workspace)
        result = qkexport.build(model, path, options=options)
        manifest = dataclasses.replace(result.manifest, attention=choice)
        manifest_path(path).unlink()  # keep_fastest writes the one it hands over
        return dataclasses.replace(result, manifest=manifest)

    return build


@pytest.mark.parametrize(("times", "best"), [((1e-3, 2e-3), PLUGIN), ((3e-3, 2e-3), NATIVE)])
def test_the_faster_engine_is_kept_and_the_times_are_told(
    tmp_path: Path, times: tuple[float, float], best: AttentionChoice
) -> None:
    model = save_fused(tmp_path / "model.onnx")
    measured = dict(zip((PLUGIN, NATIVE), times, strict=True))
    output = tmp_path / "out" / "model.engine"
    result = keep_fastest(_builder(model), lambda path: measured[_choice(path)], output)
    assert result.output == output
    assert verify_files(output) == result.manifest
    assert result.manifest.attention == best
    assert result.manifest.parity.tier == "RAN"
    assert f"plugin {1e3 * times[0]:.3f} ms, native {1e3 * times[1]:.3f} ms" in (
        result.attention_reason
    )
    assert len(list(output.parent.iterdir())) == 2


def _choice(path: Path) -> AttentionChoice:
    return AttentionChoice(path.stem)


def test_what_cannot_be_built_is_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build = _builder(save_fused(tmp_path / "model.onnx"), {PLUGIN: "No kernel."})
    result = keep_fastest(build, lambda path: 1e-3, tmp_path / "model.engine")
    assert result.manifest.attention == NATIVE
    assert "the other one could not be built" in result.attention_reason
    assert "attention plugin is out: No kernel." in caplog.text


def test_when_neither_can_be_built_the_first_reason_is_told(tmp_path: Path) -> None:
    build = _builder(tmp_path / "model.onnx", {PLUGIN: "First.", NATIVE: "Second."})
    with pytest.raises(BuildError, match="First"):
        keep_fastest(build, lambda path: 1e-3, tmp_path / "model.engine")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_the_operator_is_built_once(tmp_path: Path) -> None:
    model = save_native(tmp_path / "model.onnx")
    measured: list[Path] = []

    def measure(path: Path) -> float:
        measured.append(path)
        return 1e-3

    keep_fastest(_builder(model), measure, tmp_path / "model.engine")
    assert len(measured) == 1
