"""The text of --input, --dynamic and the files of --inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import untrusted_files as files

from qkexport.errors import UsageError
from qkexport.input_options import DynamicDim, InputSpec, read_inputs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ids=2,16:int64", InputSpec("ids", (2, 16), "int64")),
        ("x=1x3x59x97", InputSpec("x", (1, 3, 59, 97), "float32")),
        ("t=:float16", InputSpec("t", (), "float16")),
        ("t=", InputSpec("t", (), "float32")),
        (" a.b[0]=7:bool ", InputSpec("a.b[0]", (7,), "bool")),
        ("x=0,4", InputSpec("x", (0, 4), "float32")),
    ],
)
def test_an_input_is_a_name_a_shape_and_a_type(text: str, expected: InputSpec) -> None:
    assert InputSpec.parse(text) == expected


@pytest.mark.parametrize("text", ["ids", "=2", "ids=2,,3", "ids=2,b", "ids=-1", "x=2:", "x=2,"])
def test_a_malformed_input_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--input must be NAME=SHAPE"):
        InputSpec.parse(text)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UsageError, match="known type, got 'float23'"):
        InputSpec.parse("x=2:float23")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ids:1=seq", DynamicDim("ids", 1, "seq")),
        ("ids:-1=seq:4", DynamicDim("ids", -1, "seq", 4)),
        ("ids:0=n:1:512", DynamicDim("ids", 0, "n", 1, 512)),
        ("ids:0=n::512", DynamicDim("ids", 0, "n", None, 512)),
    ],
)
def test_a_dynamic_axis_has_a_symbol_and_maybe_a_range(text: str, expected: DynamicDim) -> None:
    assert DynamicDim.parse(text) == expected


@pytest.mark.parametrize("text", ["ids=seq", "ids:1", "ids:x=seq", "ids:1=2", "ids:1=s:a", ":1=s"])
def test_a_malformed_axis_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--dynamic must be NAME:AXIS=SYMBOL"):
        DynamicDim.parse(text)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(UsageError, match="MIN < MAX, got 8:8"):
        DynamicDim.parse("ids:1=seq:8:8")


def test_inputs_come_from_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", ids=np.arange(6).reshape(2, 3))
    assert torch.equal(read_inputs(tmp_path / "in.npz")["ids"], torch.arange(6).reshape(2, 3))


def test_inputs_come_from_a_dict_of_tensors(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(59, dtype=torch.bfloat16)}, tmp_path / "in.pt")
    assert read_inputs(tmp_path / "in.pt")["x"].dtype == torch.bfloat16


def test_missing_input_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must exist"):
        read_inputs(tmp_path / "in.npz")


def test_input_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("{}")
    with pytest.raises(UsageError, match=r"must be \.npz or \.pt"):
        read_inputs(tmp_path / "in.json")


@pytest.mark.parametrize("value", [torch.ones(2), {"x": 3}, [torch.ones(1)], {3: torch.ones(1)}])
def test_input_files_hold_named_tensors(tmp_path: Path, value: object) -> None:
    torch.save(value, tmp_path / "in.pt")
    with pytest.raises(UsageError, match="must hold a dict of tensors"):
        read_inputs(tmp_path / "in.pt")


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_input_files_are_never_unpickled(tmp_path: Path, suffix: str) -> None:
    marker = tmp_path / "attacked"
    if suffix == ".pt":
        torch.save(files.Attack(marker), tmp_path / "in.pt")
    else:
        np.savez(tmp_path / "in.npz", x=np.array(files.Attack(marker), dtype=object))
    with pytest.raises(UsageError, match="nothing pickled"):
        read_inputs(tmp_path / f"in{suffix}")
    assert not marker.exists()


def test_a_cut_input_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match="must hold named tensors"):
        read_inputs(tmp_path / "in.npz")
