"""A staged model appears whole, with its own data, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import tape

from qkexport.export import save_model
from qkexport.staging import staged_model


def _model(value: float, folder: Path) -> ir.Model:
    """Adds a constant of 1000 elements, which lies in a file of its own."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1000]))
    array = np.full(1000, value, np.float32)
    weight = ir.Value(name="w", const_value=ir.tensor(array, name="w"))
    steps = tape.Tape()
    y = steps.op("Add", [x, weight])
    y.name, y.type, y.shape = "y", x.type, x.shape
    graph = ir.Graph([x], [y], nodes=steps.nodes, initializers=[weight], opset_imports={"": 20})
    folder.mkdir(exist_ok=True)
    source = folder / f"{value}.onnx"
    save_model(ir.Model(graph, ir_version=10), source, single_file_limit=0)
    return ir.load(source)


def _weight(path: Path) -> float:
    tensor = ir.load(path).graph.initializers["w"].const_value
    assert tensor is not None
    return float(tensor.numpy()[999])


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_nothing_is_left_of_a_model_that_is_not_committed(tmp_path: Path) -> None:
    model = _model(1, tmp_path / "sources")
    with staged_model(model, tmp_path / "m.onnx") as staged:
        assert _weight(staged.path) == 1
    assert _names(tmp_path) == set()
    assert [path.name for path in tmp_path.iterdir()] == ["sources"]


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "import onnx_ir as ir\n"
        "from qkexport.staging import staged_model\n"
        "with staged_model(ir.load(sys.argv[1]), Path(sys.argv[2])):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    model = _model(1, tmp_path / "sources")
    source, target = tmp_path / "sources" / "1.onnx", tmp_path / "m.onnx"
    subprocess.run([sys.executable, "-c", code, source, target], check=False)
    assert len(list(tmp_path.glob(".*.partial"))) == 1
    with staged_model(model, target) as staged:
        assert list(tmp_path.glob(".*.partial")) == [staged.path.parent]
    assert [path.name for path in tmp_path.iterdir()] == ["sources"]


def test_a_committed_model_has_its_data_beside_it(tmp_path: Path) -> None:
    with staged_model(_model(1, tmp_path / "sources"), tmp_path / "m.onnx") as staged:
        staged.commit()
    assert _names(tmp_path) == {"m.onnx", "m.onnx.data"}
    assert _weight(tmp_path / "m.onnx") == 1


def test_a_model_replaces_another_together_with_its_data(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        with staged_model(_model(value, tmp_path / "sources"), tmp_path / "m.onnx") as staged:
            staged.commit()
        assert _weight(tmp_path / "m.onnx") == value
        assert len(_names(tmp_path)) == 2


def test_the_old_model_keeps_its_data_until_the_new_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    with staged_model(_model(1, tmp_path / "sources"), path) as staged:
        staged.commit()
    move = Path.replace

    def fails(self: Path, target: Path) -> Path:
        if target == path:
            message = "the machine stops before the model is in its place"
            raise OSError(message)
        return move(self, target)

    with staged_model(_model(2, tmp_path / "sources"), path) as staged:
        monkeypatch.setattr(Path, "replace", fails)
        with pytest.raises(OSError, match="the machine stops"):
            staged.commit()
    assert _weight(path) == 1
