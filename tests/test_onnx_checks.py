"""Hostile ONNX files: refused in words, or read in little time and memory; never a crash."""

from __future__ import annotations

import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import hostile_models
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.diagnosis.known_answer import known_model
from qkexport.errors import LoadError, QkexportError
from qkexport.export import to_form
from qkexport.inspection import inspect
from qkexport.load import OnnxSource, load_source

_MEMORY = 8 << 30  # of address space; torch alone maps half of it


@pytest.mark.parametrize("name", hostile_models.REFUSED)
def test_a_hostile_file_is_refused_in_words(name: str, tmp_path: Path) -> None:
    make, message = hostile_models.REFUSED[name]
    path = hostile_models.write(tmp_path / "model", make())
    with pytest.raises(LoadError, match=message):
        inspect(path)


@pytest.mark.parametrize("name", hostile_models.READ)
def test_what_only_claims_to_be_huge_is_read_with_bounded_memory(name: str, tmp_path: Path) -> None:
    path = hostile_models.write(tmp_path / "model", hostile_models.READ[name]())
    code = f"from qkexport.inspection import inspect; print(inspect({str(path)!r}).found)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 1


def test_nodes_in_any_order_are_read(tmp_path: Path) -> None:
    model = hostile_models.doubling_functions(3)
    identity = onnx.helper.make_node("Identity", ["z"], ["y"])
    call = onnx.helper.make_node("F0", ["x"], ["z"], domain="loc")
    del model.graph.node[:]
    model.graph.node.extend([identity, call])
    source = load_source(hostile_models.write(tmp_path / "model", model))
    assert isinstance(source, OnnxSource)
    assert [node.op_type for node in source.model.graph] == ["F0", "Identity"]


@pytest.fixture(scope="module")
def honest() -> bytes:
    data: bytes = ir.to_proto(to_form(known_model(), "portable")).SerializeToString()
    return data


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(
    honest: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_damaged(honest, data))
    _read(path)


@pytest.mark.nightly
@settings(
    max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused_at_length(
    honest: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_damaged(honest, data))
    _read(path)


def _damaged(honest: bytes, data: st.DataObject) -> bytes:
    raw = bytearray(honest)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(raw))))
    return bytes(raw[:cut])


def _read(path: Path) -> None:
    try:
        load_source(path)
        inspect(path)
    except QkexportError:
        return


_NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(width=32), st.text(max_size=20))


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=st.dictionaries(st.sampled_from(sorted(known_model().graph[0].attributes)), _NUMBERS))
def test_any_attribute_values_are_read_or_refused(
    tmp_path: Path, values: dict[str, int | float | str]
) -> None:
    model = known_model()
    for name, value in values.items():
        model.graph[0].attributes[name] = ir.convenience.convert_attribute(name, value)
    path = tmp_path / "model.onnx"
    ir.save(model, path)
    _read(path)


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_a_zip_bomb_is_refused_before_anything_is_unpacked(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb{suffix}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/archive_format" if suffix == ".pt2" else "bomb/data.pkl", "pt2")
        archive.writestr("bomb/data/weights/weight_0", bytes(1 << 26))
    assert path.stat().st_size < 1 << 18
    with pytest.raises(LoadError, match=r"must not be a zip bomb, got an archive .* 67 MB"):
        load_source(path, allow_pickle=True)
