"""Files that a model loader meets: honest ones of every kind, damaged ones, and hostile ones.

Every hostile file tries to create `marker`; a test that finds it has been attacked.
"""

from __future__ import annotations

import io
import json
import pathlib
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Edit = Callable[[str, bytes], bytes]


class Plain(nn.Module):
    """A small module whose class can be imported."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x)
        return result


class Attack:
    """Unpickling an instance creates a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return pathlib.Path.touch, (self.marker,)


class Command:
    """Unpickling an instance runs a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.system, (f"touch {self.marker}",)


def saved_bytes(value: object, *, zipped: bool = True) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


def write_program(path: Path) -> Path:
    program = torch.export.export(Plain().eval(), (torch.zeros(2, 3),))
    torch.export.save(program, path)
    return path


def edited_archive(source: Path, path: Path, edit: Edit) -> Path:
    """A copy of a zip archive with the contents of its records edited."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for record in old.infolist():
            new.writestr(record.filename, edit(record.filename, old.read(record)))
    return path


def hostile_sample_inputs(marker: Path) -> Edit:
    payload = saved_bytes(Attack(marker))
    return lambda name, data: payload if "sample_inputs" in name else data


def hostile_weight(marker: Path) -> Edit:
    payload = saved_bytes(Attack(marker))

    def edit(name: str, data: bytes) -> bytes:
        if name.endswith("data/weights/weight_0"):
            return payload
        if name.endswith("model_weights_config.json"):
            return data.replace(b'"use_pickle": false', b'"use_pickle": true')
        return data

    return edit


def hostile_size(marker: Path) -> Edit:
    def change(program: dict[str, Any]) -> None:
        tensors = program["graph_module"]["graph"]["tensor_values"]
        size = {"as_expr": {"expr_str": _code(marker), "hint": None}}
        next(iter(tensors.values()))["sizes"][0] = size

    return _program_edit(change)


def hostile_guard(marker: Path) -> Edit:
    def change(program: dict[str, Any]) -> None:
        program["guards_code"] = [f"{_code(marker)} is None"]

    return _program_edit(change)


def hostile_tree(marker: Path) -> Edit:
    def change(program: dict[str, Any]) -> None:
        context = json.dumps(json.dumps([{"__enum__": True, "fqn": "this", "name": "y"}]))
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = signature["in_spec"].replace('"null"', context)

    return _program_edit(change)


def _code(marker: Path) -> str:
    return f"__import__('pathlib').Path('{marker}').touch()"


def _program_edit(change: Callable[[dict[str, Any]], None]) -> Edit:
    def edit(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        program = json.loads(data)
        change(program)
        return json.dumps(program).encode()

    return edit


def write_pickle(path: Path, value: object) -> Path:
    path.write_bytes(pickle.dumps(value))
    return path
