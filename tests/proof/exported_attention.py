"""A small model and the ONNX file that PyTorch exports from it."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import torch
from qk_norm_models import VOCABULARY, MaskedAttention

from qkexport.load import TorchSource
from qkexport.trace import trace


@dataclasses.dataclass(frozen=True)
class Exported:
    """A module with its inputs, and the ONNX file that PyTorch exports from it."""

    source: TorchSource
    path: Path

    @property
    def output(self) -> str:
        return str(self.model().graph.outputs[0].name)

    def model(self) -> ir.Model:
        return ir.load(self.path)

    def edited(self, folder: Path, edit: Callable[[ir.Model], None]) -> Path:
        """The file with a change, under a new name."""
        model = self.model()
        edit(model)
        path = folder / "edited.onnx"
        ir.save(model, path)
        return path


@functools.cache
def exported_attention(dtype: torch.dtype = torch.float32) -> Exported:
    """The model in a type, exported once a process."""
    torch.manual_seed(7)
    folder = tempfile.TemporaryDirectory(prefix="exported-")
    atexit.register(folder.cleanup)
    batch, length = torch.export.Dim("batch", max=16), torch.export.Dim("length", max=64)
    module = MaskedAttention().to(dtype).eval()
    ids = torch.randint(0, VOCABULARY, (2, 9))
    mask = torch.ones(2, 1, 9, 9, dtype=torch.bool)
    shapes = {"ids": {0: batch, 1: length}, "mask": {0: batch, 2: length, 3: length}}
    source = TorchSource("attention", module, (ids, mask), {}, shapes)
    path = Path(folder.name) / f"attention-{str(dtype).removeprefix('torch.')}.onnx"
    ir.save(trace(source, opset=24).model, path)
    return Exported(source, path)
