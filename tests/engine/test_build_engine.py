"""Real engines of TensorRT-RTX, built here without a GPU."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from engine_models import (
    WIDTH,
    needs_rtx,
    save_cross,
    save_fused,
    save_native,
    save_reshape,
    spec_with,
)

import qkexport
from qkexport import BuildOptions
from qkexport.engine.options import ShapeRange, parse_shapes
from qkexport.engine.verify import verify_files
from qkexport.errors import BuildError, UnsupportedModelError, UsageError

pytestmark = needs_rtx

TARGETS = BuildOptions(targets=("sm_89", "sm_120"))


def _digest(model: Path, options: BuildOptions = TARGETS) -> str:
    result = qkexport.build(model, model.with_suffix(".engine"), options=options)
    assert result
    return result.manifest.engine.sha256


def test_a_fused_model_becomes_an_engine_with_a_manifest(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    result = qkexport.build(model, tmp_path / "model.engine", options=TARGETS)
    assert result
    assert result.output == tmp_path / "model.engine"
    manifest = verify_files(result.output)
    assert manifest == result.manifest
    assert (manifest.runtime, manifest.targets) == ("tensorrt-rtx", ("sm_89", "sm_120"))
    assert (manifest.op_version, manifest.attention, manifest.plugin) == (1, "native", None)
    assert [(x.name, x.dtype, x.shape) for x in manifest.inputs] == [
        ("x", "float16", (-1, -1, WIDTH))
    ]
    assert [(y.name, y.dtype, y.shape) for y in manifest.outputs] == [
        ("y", "float16", (-1, -1, WIDTH))
    ]
    assert manifest.precision == ("float16",)
    assert result.attention_reason == "TensorRT-RTX has no plugins"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_tensor_type_builds(tmp_path: Path, dtype: str) -> None:
    model = save_fused(tmp_path / "model.onnx", dtype=dtype)
    result = qkexport.build(model, tmp_path / "model.engine", options=TARGETS)
    assert result.manifest.precision == (dtype,)


def test_the_same_model_gives_the_same_engine(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    assert _digest(model) == _digest(model)


# norm_rounding is missing: the lowered norm keeps float32 throughout, more than either asks for.
CHANGES: dict[str, dict[str, Any]] = {
    "none": {},
    "upper_left": {"causal": "upper_left"},
    "lower_right": {"causal": "lower_right"},
    "window_left": {"window_left": 3},
    "window_right": {"window_right": 3},
    "scale": {"scale": 0.5},
    "softcap": {"softcap": 7.0},
    "epsilon": {"qk_norm_epsilon": 1e-3},
    "layer": {"qk_norm": "layer"},
    "l2": {"qk_norm": "l2"},
    "hidden": {"norm_axis": "hidden"},
    "raw_keys": {"normalize_key": False},
}


def test_models_that_differ_in_one_attribute_give_different_engines(tmp_path: Path) -> None:
    digests = {
        name: _digest(save_cross(tmp_path / f"{name}.onnx", spec_with(**changes)))
        for name, changes in CHANGES.items()
    }
    assert len(set(digests.values())) == len(CHANGES), digests


def test_weights_are_in_the_engine(tmp_path: Path) -> None:
    one = _digest(save_fused(tmp_path / "one.onnx", seed=1))
    assert one != _digest(save_fused(tmp_path / "two.onnx", seed=2))


def test_every_target_alone_and_all_together(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    every = qkexport.build(model, tmp_path / "a.engine", options=BuildOptions(targets=("all",)))
    assert every.manifest.targets == ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
    for target in every.manifest.targets:
        options = BuildOptions(targets=(target,))
        one = qkexport.build(model, tmp_path / f"{target}.engine", options=options)
        assert one.manifest.targets == (target,)
        assert next(check for check in one.checks if check.name == "header").passed


def test_float32_on_turing_is_explained(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx", dtype="float32")
    with pytest.raises(BuildError, match="Turing") as caught:
        qkexport.build(model, tmp_path / "m.engine", options=BuildOptions(targets=("sm_75",)))
    assert "convert with --dtype float16" in str(caught.value)


def test_without_a_target_the_engine_runs_on_ampere_and_later(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    result = qkexport.build(model, tmp_path / "model.engine")
    assert result.manifest.targets == ("sm_80+",)
    assert next(check for check in result.checks if check.name == "header").passed


def test_default_shapes_come_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_fused(tmp_path / "model.onnx")
    result = qkexport.build(model, tmp_path / "model.engine", options=TARGETS)
    assert "batch 1..8 (best at 1), seq 1..1024 (best at 128)" in caplog.text
    shapes = ((1, 1, WIDTH), (1, 128, WIDTH), (8, 1024, WIDTH))
    assert result.manifest.profiles == ({"x": shapes},)


def test_an_input_that_decides_over_shapes_is_given_by_its_values(tmp_path: Path) -> None:
    model = save_reshape(tmp_path / "model.onnx")
    shapes = ["x=1x6,2x6,4x6", "target=1x1,6x2,24x24"]
    options = BuildOptions(targets=("sm_89",), profiles=parse_shapes(shapes))
    result = qkexport.build(model, tmp_path / "m.engine", options=options)
    assert result.manifest.profiles[0]["target"] == ((1, 1), (6, 2), (24, 24))
    without = BuildOptions(targets=("sm_89",), profiles=parse_shapes(shapes[:1]))
    with pytest.raises(BuildError, match="missing values for shape input") as caught:
        qkexport.build(model, tmp_path / "m.engine", options=without)
    assert "with the values joined by x" in str(caught.value)
    wrong = BuildOptions(profiles=parse_shapes([shapes[0], "target=1x1x1"]))
    with pytest.raises(UsageError, match="must give its"):
        qkexport.build(model, tmp_path / "m.engine", options=wrong)


def test_several_profiles_are_kept_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = ShapeRange((1, 1, WIDTH), (1, 59, WIDTH), (2, 97, WIDTH))
    token = ShapeRange((1, 1, WIDTH), (8, 1, WIDTH), (16, 1, WIDTH))
    options = BuildOptions(targets=("sm_89",), profiles=({"x": prompt}, {"x": token}))
    model = save_fused(tmp_path / "model.onnx")
    result = qkexport.build(model, tmp_path / "model.engine", options=options)
    assert [profile["x"][1] for profile in result.manifest.profiles] == [
        (1, 59, WIDTH),
        (8, 1, WIDTH),
    ]
    assert "--shape" not in caplog.text
    assert result.manifest.engine.sha256 != _digest(model, BuildOptions(targets=("sm_89",)))


def test_an_unused_input_fails_the_build_and_leaves_the_old_engine(tmp_path: Path) -> None:
    output = tmp_path / "model.engine"
    qkexport.build(save_native(tmp_path / "good.onnx"), output, options=TARGETS)
    before = output.read_bytes()
    bad = save_native(tmp_path / "bad.onnx", unused=True)
    with pytest.raises(BuildError, match="no part that TensorRT drops, got unused") as caught:
        qkexport.build(bad, output, options=TARGETS)
    assert "Unused Input" in str(caught.value)
    assert output.read_bytes() == before
    assert verify_files(output)


def test_attention_without_a_fused_kernel_is_decomposed(tmp_path: Path) -> None:
    model = save_native(tmp_path / "model.onnx", dtype="float32")
    assert qkexport.build(model, tmp_path / "model.engine", options=TARGETS)


def test_a_failed_build_leaves_no_file(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    with pytest.raises(BuildError, match="workspace"):
        qkexport.build(model, tmp_path / "model.engine", options=BuildOptions(workspace=1))
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_builds_after_a_failure_still_hear_tensorrt(tmp_path: Path) -> None:
    # TensorRT keeps the first logger of the process, whatever later builders are given.
    bad = save_native(tmp_path / "bad.onnx", unused=True)
    for _ in range(2):
        with pytest.raises(BuildError, match="got unused"):
            qkexport.build(bad, tmp_path / "bad.engine", options=TARGETS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"refit": True}, "CUDA driver"),
        ({"strip_weights": True}, "CUDA driver"),
        ({"version_compatible": True}, "lean runtime"),
    ],
)
def test_options_that_cannot_be_met_here_are_explained(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    model = save_fused(tmp_path / "model.onnx")
    with pytest.raises(BuildError, match=said):
        qkexport.build(model, tmp_path / "m.engine", options=BuildOptions(**options))


def test_a_workspace_that_suffices_changes_nothing_but_the_manifest(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    options = BuildOptions(targets=("sm_89",), workspace=1 << 30)
    result = qkexport.build(model, tmp_path / "model.engine", options=options)
    assert result.manifest.options["workspace"] == 1 << 30


@pytest.mark.parametrize("option", ["opt_level", "timing_cache"])
def test_options_that_rtx_ignores_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    values: dict[str, Any] = {"opt_level": 5, "timing_cache": tmp_path / "timings"}
    model = save_fused(tmp_path / "model.onnx")
    options = BuildOptions(targets=("sm_89",), **{option: values[option]})
    assert _digest(model, options) == _digest(model, BuildOptions(targets=("sm_89",)))
    assert f"--{option.replace('_', '-')} has no effect on tensorrt-rtx" in caplog.text
    assert not (tmp_path / "timings").exists()


def test_softcap_of_onnx_attention_is_refused_before_tensorrt_sees_it(tmp_path: Path) -> None:
    model = save_native(tmp_path / "model.onnx", attributes={"softcap": 5.0})
    with pytest.raises(UnsupportedModelError, match="softcap"):
        qkexport.build(model, tmp_path / "model.engine", options=TARGETS)


def test_names_with_spaces_build_and_verify(tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    model = save_fused(tmp_path / "a folder" / "a model.onnx")
    output = tmp_path / "another folder" / "an engine.engine"
    result = qkexport.build(model, output, options=BuildOptions(targets=("sm_89",)))
    assert verify_files(output) == result.manifest


def test_a_model_behind_a_relative_link_builds(tmp_path: Path) -> None:
    blob = save_fused(tmp_path / "model.onnx").rename(tmp_path / "blob")
    model = tmp_path / "snapshot" / "model.onnx"
    model.parent.mkdir()
    model.symlink_to("../blob")
    assert _digest(model) == _digest(blob.rename(tmp_path / "plain.onnx"))


def test_an_output_that_is_not_named_like_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must be named like an engine, got 'model\.onnx'"):
        qkexport.build(tmp_path / "model.onnx", tmp_path / "model.onnx")


def test_tensorrt_speaks_through_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = save_fused(tmp_path / "model.onnx")
    with caplog.at_level(logging.DEBUG, logger="qkexport.tensorrt"):
        _digest(model)
    assert any(record.name == "qkexport.tensorrt" for record in caplog.records)


def test_progress_rises_from_nothing_to_all(tmp_path: Path) -> None:
    seen: list[tuple[float, str]] = []
    model = save_fused(tmp_path / "model.onnx")
    qkexport.build(
        model,
        tmp_path / "m.engine",
        options=TARGETS,
        progress=lambda share, phase: seen.append((share, phase)),
    )
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] > 0.8
    assert "Building engine" in {phase for _, phase in seen}


def test_the_manifest_is_readable_json(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    qkexport.build(model, tmp_path / "model.engine", options=TARGETS)
    document = json.loads((tmp_path / "model.engine.json").read_text())
    assert document["schema_version"] == 1
    assert document["parity"]["tier"] == "BUILT"
    assert document["created_by"] == f"qkexport {qkexport.__version__}"
