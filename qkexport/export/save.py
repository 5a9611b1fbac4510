"""Saving a model so that its path never names a half-written one."""

from __future__ import annotations

import contextlib
import glob
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir

from qkexport.errors import UsageError
from qkexport.export.onnx_stream import write_model

# A protobuf message ends at 2**31 bytes; the rest of a model is granted 64 MiB.
LARGEST_SINGLE_FILE: Final = 2**31 - 2**26
_INLINE_BYTES: Final = 1024  # smaller tensors stay in the .onnx: shape inference reads them


def save_model(
    model: ir.Model, path: str | os.PathLike[str], *, single_file_limit: int = LARGEST_SINGLE_FILE
) -> Path:
    """Writes a model next to its final place and moves it there in one step.

    Weights go into the file itself, or, when they are more than `single_file_limit` bytes or the
    model came with external data, into `<name>.data` next to it (`<name>.1.data`, ... where that
    is taken, so that the data of a file that is being replaced stays whole until the new one
    stands). Weights are streamed: at no time does a second copy of them exist in memory.

    Args:
        model: Stays as it is.
        path: Of the .onnx file; its folder must exist. An existing model is replaced, together with
            its data file.
        single_file_limit: Bytes of weights beyond which they are stored outside.

    Returns:
        The path.

    Raises:
        UsageError: The folder does not exist.
        OSError: The disk is full or not writable; what stood at `path` before is untouched.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise UsageError(f"Output of a model must be in an existing folder, got {path}.")
    tensors = list(_weights(model))
    outside = sum(tensor.nbytes for tensor in tensors) > single_file_limit
    outside = outside or any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors)
    replaced = _data_files(path)
    with _temporary_neighbour(path) as temporary:
        if outside:
            data = _free_data_path(path)
            with _removed_on_error(data):
                ir.save(
                    model, temporary, external_data=data.name, size_threshold_bytes=_INLINE_BYTES
                )
                temporary.replace(path)
        else:
            with temporary.open("wb") as file:
                write_model(model, file)
            temporary.replace(path)
    for file_path in replaced:
        file_path.unlink(missing_ok=True)
    return path


def _weights(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.dtype != ir.DataType.STRING:  # those have no bytes
                yield tensor


@contextlib.contextmanager
def _temporary_neighbour(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _free_data_path(path: Path) -> Path:
    names = [f"{path.name}.data", *(f"{path.name}.{i}.data" for i in range(1, 1000))]
    for name in names:
        if not path.with_name(name).exists():
            return path.with_name(name)
    raise UsageError(f"Data of a model finds no free name, got {len(names)} files {names[0]}.")


def _data_files(path: Path) -> list[Path]:
    """Data files that an existing model at `path` alone can mean: next to it, named after it."""
    names = {file.name for file in path.parent.glob(f"{glob.escape(path.name)}.*data")}
    if not names or not path.is_file():
        return []
    try:
        proto = onnx.load(path, load_external_data=False)
    except Exception:  # whatever stands there, it is about to be replaced
        return []
    locations = {
        entry.value
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [path.with_name(name) for name in sorted(locations & names)]
