"""Models whose weights lie beside them, from any working directory, also over 2 GB."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
from engine_models import needs_rtx, save_embedding

import qkexport
from qkexport import BuildOptions
from qkexport.engine.prepare import external_files, read_model
from qkexport.errors import BuildError, LoadError
from qkexport.files import sha256_of

pytestmark = needs_rtx

OPTIONS = BuildOptions(targets=("sm_89",))
_GIBIBYTE = 1 << 30


def test_external_data_is_found_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_embedding(tmp_path / "model.onnx", rows=1024)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = qkexport.build(Path("..") / "model.onnx", "m.engine", options=OPTIONS)
    assert result.manifest.num_layers > 0
    assert result.engine_bytes > 1024 * 1024 * 2  # the table is in it
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "model.onnx",
        "model.onnx.weights",
    ]
    data = tmp_path / "model.onnx.weights"
    assert result.manifest.onnx.sha256 == sha256_of(model, data)


def test_other_external_weights_make_another_engine(tmp_path: Path) -> None:
    model = save_embedding(tmp_path / "model.onnx", rows=64)
    one = qkexport.build(model, tmp_path / "one.engine", options=OPTIONS).manifest
    data = tmp_path / "model.onnx.weights"
    data.write_bytes(b"\x01\x3c" * (data.stat().st_size // 2))
    two = qkexport.build(model, tmp_path / "two.engine", options=OPTIONS).manifest
    assert one.onnx.sha256 != two.onnx.sha256
    assert one.engine.sha256 != two.engine.sha256


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    model = save_embedding(tmp_path / "model.onnx", rows=64)
    (tmp_path / "model.onnx.weights").unlink()
    with pytest.raises(LoadError, match=r"needs its external data, got no file .*weights"):
        qkexport.build(model, tmp_path / "m.engine", options=OPTIONS)


def test_truncated_external_data_is_named(tmp_path: Path) -> None:
    model = save_embedding(tmp_path / "model.onnx", rows=64)
    data = tmp_path / "model.onnx.weights"
    data.write_bytes(data.read_bytes()[:-2])
    with pytest.raises(LoadError, match="needs all of its external data"):
        qkexport.build(model, tmp_path / "m.engine", options=OPTIONS)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"not a model")
    with pytest.raises(LoadError, match="must be an ONNX file"):
        qkexport.build(model, tmp_path / "m.engine", options=OPTIONS)


@pytest.mark.parametrize("contents", [b"", b"\x08\x0a"])
def test_a_model_of_which_tensorrt_makes_no_layer_is_refused(
    tmp_path: Path, contents: bytes
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(contents)
    with pytest.raises(BuildError, match="must give TensorRT layers to build, got none"):
        qkexport.build(model, tmp_path / "m.engine", options=OPTIONS)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="must exist"):
        qkexport.build(tmp_path / "none.onnx", tmp_path / "m.engine", options=OPTIONS)


def test_weights_over_2_gb_are_read_without_loading_them(tmp_path: Path) -> None:
    model = read_model(save_embedding(tmp_path / "model.onnx", rows=2 * _GIBIBYTE // 1024))
    (data,) = external_files(model)
    assert data.stat().st_size == 4 * _GIBIBYTE
    assert data.stat().st_blocks < 100  # a sparse file: nothing wrote or copied it
    assert isinstance(model.graph.initializers["table"].const_value, ir.ExternalTensor)


@pytest.mark.nightly
def test_a_model_over_2_gb_becomes_an_engine(tmp_path: Path) -> None:
    model = save_embedding(tmp_path / "model.onnx", rows=1_100_003)
    result = qkexport.build(model, tmp_path / "m.engine", options=OPTIONS)
    assert result.engine_bytes > 2 * _GIBIBYTE
    assert result.manifest.num_layers > 0
    (tmp_path / "m.engine").unlink()
