"""Models read without their weights hold the same weights."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from engine_models import save_deep, save_embedding, save_fused
from google.protobuf.message import DecodeError

from qkexport.engine.by_reference import read_by_reference
from qkexport.engine.prepare import read_model
from qkexport.errors import LoadError


def _weights(model: ir.Model) -> dict[str, bytes]:
    return {
        name: value.const_value.tobytes()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


def test_every_weight_is_found_at_its_place(tmp_path: Path) -> None:
    path = save_deep(tmp_path / "model.onnx", depth=3, width=64)
    model = read_model(path)
    assert len(_weights(model)) == 3
    assert _weights(model) == _weights(ir.load(path))
    for value in model.graph.initializers.values():
        assert isinstance(value.const_value, ir.ExternalTensor)


def test_all_but_the_weights_is_as_it_was(tmp_path: Path) -> None:
    path = save_fused(tmp_path / "model.onnx")
    found, expected = read_by_reference(path), onnx.load(path)
    for model in (found, expected):
        del model.graph.initializer[:]
    assert found.SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )


def test_the_graph_is_small_however_large_the_weights_are(tmp_path: Path) -> None:
    path = save_deep(tmp_path / "model.onnx", depth=4, width=512)
    assert path.stat().st_size > 2_000_000
    assert read_by_reference(path).ByteSize() < 10_000


def test_small_weights_and_those_in_other_fields_stay(tmp_path: Path) -> None:
    small = onnx.numpy_helper.from_array(np.arange(4), "small")
    floats = onnx.helper.make_tensor("floats", onnx.TensorProto.FLOAT, [2000], [0.5] * 2000)
    graph = onnx.helper.make_graph([], "g", [], [], [small, floats])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    model = read_by_reference(tmp_path / "model.onnx")
    assert list(model.graph.initializer) == [small, floats]


def test_weights_that_are_elsewhere_stay_there(tmp_path: Path) -> None:
    path = save_embedding(tmp_path / "model.onnx", rows=64)
    assert read_by_reference(path) == onnx.load(path, load_external_data=False)


def test_damaged_files_are_refused_or_read_but_nothing_else(tmp_path: Path) -> None:
    good = save_fused(tmp_path / "good.onnx").read_bytes()
    path = tmp_path / "bad.onnx"
    generator = random.Random(59)
    refused = 0
    for _ in range(200):
        damaged = bytearray(good[: generator.randrange(1, len(good))])
        damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        path.write_bytes(damaged)
        try:
            read_by_reference(path)
        except LoadError:
            refused += 1
        except DecodeError:
            continue  # read_model names it
    assert refused > 100


@pytest.mark.parametrize("contents", [b"\xff" * 40, b"\x3a\xff\xff\xff\xff\x0f", b"\x3b"])
def test_malformed_messages_are_refused(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(contents)
    with pytest.raises(LoadError, match="got a malformed message"):
        read_by_reference(path)
