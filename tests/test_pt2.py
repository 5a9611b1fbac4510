"""A .pt2 file loads without its pickles, its size expressions or its guards being evaluated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import untrusted_files as files

from qkexport.errors import LoadError
from qkexport.pt2 import is_arithmetic, load_program

ATTACKS = {
    "sample inputs": (files.hostile_sample_inputs, "a pickled"),
    "weight": (files.hostile_weight, "a pickled"),
    "size": (files.hostile_size, "expr_str"),
    "guard": (files.hostile_guard, "guards_code"),
    "tree": (files.hostile_tree, "in_spec"),
}


def _attacked(name: str, folder: Path, marker: Path) -> Path:
    honest = files.write_program(folder / "honest.pt2")
    return files.edited_archive(honest, folder / "hostile.pt2", ATTACKS[name][0](marker))


def test_an_honest_program_loads_and_computes_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = files.write_program(tmp_path / "m.pt2")
    torch.manual_seed(0)
    module = files.Plain().eval()
    x = torch.randn(2, 3)
    assert torch.equal(load_program(path).module()(x), module(x))


def test_dynamic_sizes_and_guards_of_an_honest_program_are_accepted(tmp_path: Path) -> None:
    class Joined(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.cat([x.flatten(1) @ x.flatten(1).T, y["y"] * 2], 1)

    rows, width = torch.export.Dim("rows", max=64), torch.export.Dim("width", min=2)
    program = torch.export.export(
        Joined(),
        (torch.zeros(4, 6, 2), {"y": torch.zeros(4, 8)}),
        dynamic_shapes=({0: rows, 1: 3 * width}, {"y": {0: rows, 1: 4 * width}}),
    )
    torch.export.save(program, tmp_path / "m.pt2")
    assert load_program(tmp_path / "m.pt2").range_constraints.keys()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_program_is_refused_and_runs_nothing(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "attacked"
    path = _attacked(name, tmp_path, marker)
    with pytest.raises(LoadError) as caught:
        load_program(path)
    assert "must not run code when it is loaded" in caught.value.message
    assert ATTACKS[name][1] in caught.value.message
    assert "--allow-pickle" in (caught.value.hint or "")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["weight", "size"])
def test_the_same_files_do_run_code_when_torch_loads_them(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "attacked"
    path = _attacked(name, tmp_path, marker)
    with pytest.raises(LoadError):
        load_program(path, allow_pickle=True)
    assert marker.exists(), "the attack tests nothing if torch itself is immune"


@pytest.mark.parametrize("record", ["data/constants/custom_obj_0", "data/aotinductor/model/m.so"])
def test_records_that_are_code_are_refused(record: str, tmp_path: Path) -> None:
    import zipfile

    path = files.write_program(tmp_path / "m.pt2")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{archive.namelist()[0].partition('/')[0]}/{record}", b"x")
    with pytest.raises(LoadError, match=r"must not run code .* got the record data/"):
        load_program(path)


def test_a_cut_program_is_called_unreadable(tmp_path: Path) -> None:
    honest = files.write_program(tmp_path / "m.pt2")

    def cut(name: str, data: bytes) -> bytes:
        return data[:99] if name.endswith("models/model.json") else data

    with pytest.raises(LoadError, match=r"must be a readable \.pt2"):
        load_program(files.edited_archive(honest, tmp_path / "cut.pt2", cut))


def test_the_environment_is_as_it_was_after_loading(tmp_path: Path) -> None:
    before = dict(os.environ)
    load_program(files.write_program(tmp_path / "m.pt2"))
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s31', positive=True, integer=True)",
        "Mul(Integer(16), Symbol('s64', positive=True, integer=True))",
        "FloorDiv(Add(Symbol('s0', integer=True), Integer(-1)), Integer(2))",
        "Max(1, s0 + 3*s1)",
    ],
)
def test_sizes_are_arithmetic(text: str) -> None:
    assert is_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Symbol('s').__class__",
        "sympify('1')",
        "(lambda: 0)()",
        "[x for x in (1,)]",
        "Symbol('s0; import os')",
        "open('f')",
        "f'{x}'",
        "s0 if s1 else s2",
        "x := 3",
        "(",
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert not is_arithmetic(text)
    assert not is_arithmetic(text, guard=True)


def test_guards_may_read_sizes_of_inputs_only() -> None:
    assert is_arithmetic("L['x'].size()[0] == L['y']['z'].size()[1] // 2", guard=True)
    assert not is_arithmetic("L['x'].size()[0] == 1")
    assert not is_arithmetic("L['x'].__class__.size()", guard=True)
    assert not is_arithmetic("torch.size()", guard=True)
    assert not is_arithmetic("L['x\\'] + evil(['].size()", guard=True)
