"""Every kind of file gets its own answer, and none of them gets to run code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
import untrusted_files as files
from onnx import TensorProto, helper

from qkexport.errors import LoadError
from qkexport.load import OnnxSource, TorchSource, load_source


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "attacked"


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A file and what its refusal says."""

    write: Callable[[Path, Path], Path]
    message: str
    hint: str | None = None


def _bytes(name: str, data: bytes) -> Callable[[Path, Path], Path]:
    def write(folder: Path, _: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return write


def _torch(name: str, value: object, *, zipped: bool = True) -> Callable[[Path, Path], Path]:
    return _bytes(name, files.saved_bytes(value, zipped=zipped))


def _torchscript(folder: Path, _: Path) -> Path:
    import zipfile

    # what torch.jit.save leaves, without calling it: it is deprecated and warns
    path = folder / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("script/data.pkl", "script/code/__torch__.py", "script/constants.pkl"):
            archive.writestr(name, b"\x80\x02}.")
    return path


_MODULE = files.saved_bytes(files.Plain())
_OLD_MODULE = files.saved_bytes(files.Plain(), zipped=False)
_TENSORS = files.Plain().state_dict()

REFUSALS = {
    "missing": Refusal(lambda folder, _: folder / "nothing.pt", "Source must exist, got"),
    "empty": Refusal(_bytes("empty.pt", b""), "got an empty file", "save or download"),
    "state dict": Refusal(_torch("sd.pt", _TENSORS), "got a state_dict", "load_state_dict"),
    "old state dict": Refusal(_torch("sd.pt", _TENSORS, zipped=False), "got a state_dict"),
    "checkpoint": Refusal(_torch("ck.pth", {"model": _TENSORS, "step": 3}), "got a state_dict"),
    "safetensors": Refusal(_bytes("m.safetensors", b"\x10\0\0\0"), "got a state_dict"),
    "torchscript": Refusal(_torchscript, "got a TorchScript archive", "torch.export.save"),
    "cut zip": Refusal(_bytes("cut.pt", _MODULE[: len(_MODULE) // 2]), "got a damaged zip archive"),
    "cut pickle": Refusal(_bytes("cut.pt", _OLD_MODULE[:60]), "got a damaged pickle"),
    "module": Refusal(
        _torch("mod.pt", files.Plain()), "only unpickled with --allow-pickle, got a pickled object"
    ),
    "old module": Refusal(_torch("mod.pt", files.Plain(), zipped=False), "--allow-pickle, got"),
    "command": Refusal(
        lambda folder, marker: files.write_pickle(folder / "x.pt", files.Command(marker)),
        "must not run commands when it is read, got a pickle that calls posix.system",
        "do not load it",
    ),
    "attack": Refusal(
        lambda folder, marker: files.write_pickle(folder / "x.pt", files.Attack(marker)),
        "--allow-pickle, got a pickled object of pathlib.",
    ),
    "text": Refusal(_bytes("notes.txt", b"hello"), "got an unknown file type (.txt)"),
    "pointer": Refusal(
        _bytes("m.onnx", b"version https://git-lfs.example/v1\n"), "got a Git LFS", "git lfs pull"
    ),
    "other folder": Refusal(
        lambda folder, _: folder, "must be a file or a Hugging Face folder", "config.json"
    ),
    "not onnx": Refusal(_bytes("m.onnx", b"\0garbage" * 9), "must be an ONNX model, got"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_file_that_is_no_model_is_refused_by_what_it_is(
    name: str, tmp_path: Path, marker: Path
) -> None:
    refusal = REFUSALS[name]
    path = refusal.write(tmp_path, marker)
    with pytest.raises(LoadError) as caught:
        load_source(path)
    assert refusal.message in caught.value.message
    assert refusal.hint is None or refusal.hint in (caught.value.hint or "")
    assert caught.value.exit_code == 2
    assert not marker.exists()


def test_refusals_of_different_kinds_read_differently(tmp_path: Path, marker: Path) -> None:
    kinds = ["state dict", "torchscript", "cut zip", "module", "command", "empty", "other folder"]
    messages = set()
    for index, name in enumerate(kinds):
        folder = tmp_path / str(index)
        folder.mkdir()
        path = REFUSALS[name].write(folder, marker)
        with pytest.raises(LoadError) as caught:
            load_source(path)
        messages.add(caught.value.message.replace(str(path), ""))
    assert len(messages) == len(kinds)


def test_a_typo_is_answered_with_the_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(LoadError) as caught:
        load_source(tmp_path / "modle.onnx")
    assert "model.onnx" in (caught.value.hint or "")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_module_loads_when_it_is_allowed(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "module.pt"
    path.write_bytes(files.saved_bytes(files.Plain(), zipped=zipped))
    source = load_source(path, allow_pickle=True)
    assert isinstance(source, TorchSource)
    assert isinstance(source.module, files.Plain)
    assert not source.module.training


def test_an_allowed_pickle_must_still_hold_a_module(tmp_path: Path, marker: Path) -> None:
    path = files.write_pickle(tmp_path / "x.pt", files.Attack(marker))
    with pytest.raises(LoadError, match="must"):
        load_source(path, allow_pickle=True)


def test_a_class_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "module.pt"
    path.write_bytes(files.saved_bytes(files.Plain()))
    monkeypatch.delattr(files, "Plain")
    with pytest.raises(LoadError, match=r"needs its classes to be importable, got .*Plain"):
        load_source(path, allow_pickle=True)


def test_a_live_module_is_put_into_eval_mode() -> None:
    source = load_source(files.Plain().train())
    assert isinstance(source, TorchSource)
    assert not source.module.training


def test_something_else_is_refused_by_its_type() -> None:
    with pytest.raises(LoadError, match="got int"):
        load_source(3)


def _save_onnx(path: Path, *, external: bool) -> Path:
    weight = np.arange(512, dtype=np.float32).reshape(2, 256)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(
        model, path, save_as_external_data=external, location="data.bin", size_threshold=0
    )
    return path


@pytest.mark.parametrize("external", [True, False])
def test_an_onnx_model_loads_from_any_folder(
    tmp_path: Path, external: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _save_onnx(tmp_path / "m.onnx", external=external)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    source = load_source(path)
    assert isinstance(source, OnnxSource)
    weight = source.model.graph.initializers["w"].const_value
    assert weight is not None
    assert weight.numpy()[1, 255] == 511


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path = _save_onnx(tmp_path / "m.onnx", external=True)
    (tmp_path / "data.bin").unlink()
    with pytest.raises(LoadError, match=r"external data beside it, got no .*data\.bin"):
        load_source(path)


def test_cut_external_data_is_named(tmp_path: Path) -> None:
    path = _save_onnx(tmp_path / "m.onnx", external=True)
    (tmp_path / "data.bin").write_bytes(b"\0" * 100)
    with pytest.raises(LoadError, match=r"needs 2048 bytes of external data .*, got 100"):
        load_source(path)


@pytest.mark.parametrize("location", ["../data.bin", "/etc/passwd"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    path = _save_onnx(tmp_path / "m.onnx", external=True)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(LoadError, match="in its own folder"):
        load_source(path)


def test_a_model_without_a_graph_is_refused(tmp_path: Path) -> None:
    ir.save(
        ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 20}), ir_version=10),
        tmp_path / "m.onnx",
    )
    with pytest.raises(LoadError, match="without a graph"):
        load_source(tmp_path / "m.onnx")


def test_a_module_comes_with_its_inputs_in_a_tuple() -> None:
    x = torch.ones(2, 3)
    source = load_source((files.Plain(), (x,)))
    assert isinstance(source, TorchSource)
    assert source.name == "Plain"
    assert source.args[0] is x


@pytest.mark.parametrize("source", [(), (3,), (files.Plain(), (), {}, None, None)])
def test_another_tuple_is_refused(source: object) -> None:
    with pytest.raises(LoadError, match="Source must hold a model, got"):
        load_source(source)
