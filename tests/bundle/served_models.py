"""Manifests of engines that need no building, for what is written about them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from qkexport.bundle.triton import ServedModel
from qkexport.manifest import FileRecord, Manifest, ParityEvidence, TensorRecord

X = TensorRecord("x", "float16", (-1, -1, 32))
Y = TensorRecord("y", "float16", (-1, -1, 32))
PROFILE: dict[str, tuple[tuple[int, ...], ...]] = {"x": ((1, 1, 32), (4, 59, 32), (8, 97, 32))}

MANIFEST = Manifest(
    engine=FileRecord("m.engine", "0" * 64),
    onnx=FileRecord("m.onnx", "1" * 64),
    plugin=None,
    op_version=1,
    attention="plugin",
    runtime="tensorrt",
    version="11.4.0.106",
    targets=("sm_89",),
    profiles=(PROFILE,),
    precision=("float16",),
    inputs=(X,),
    outputs=(Y,),
    num_layers=7,
    options={},
    parity=ParityEvidence("BUILT", "the engine was not run"),
    created_by="qkexport 0",
)


def served(*targets: tuple[str, ...], **changes: Any) -> ServedModel:
    """A model with an engine for each group of targets."""
    manifest = dataclasses.replace(MANIFEST, **changes)
    groups = targets or (("sm_89",),)
    engines = {
        Path(f"m.{'_'.join(group)}.engine"): dataclasses.replace(manifest, targets=group)
        for group in groups
    }
    return ServedModel("m", engines)
