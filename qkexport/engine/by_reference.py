"""Reads a model whose weights stay in its file: large ones become references into it.

A weight that is read only to be written again costs a copy in memory and one on the disk, for a
model of gigabytes more than everything else around a build. The wire format of protobuf lets the
weights be stepped over: a message is a row of fields, each with its number, kind and length.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from qkexport.errors import LoadError

if TYPE_CHECKING:
    import onnx

# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_RAW_DATA, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_EXTERNAL: Final = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
# Smaller weights may be shapes, which are read while the graph is looked at.
_SMALLEST_BYTES: Final = 4096


class _Field(NamedTuple):
    """One field of a message: its number, where it begins, and where its contents lie."""

    number: int
    begin: int
    data: int
    end: int


def read_by_reference(path: Path) -> onnx.ModelProto:
    """The model of a file, with its large weights as external data at their place in the file.

    Raises:
        LoadError: The file is not a protobuf message.
    """
    import onnx

    if path.stat().st_size == 0:
        return onnx.ModelProto()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            message = _rewrite_model(data, path.name)
            model: onnx.ModelProto = onnx.ModelProto.FromString(message)
        except (IndexError, ValueError, KeyError) as error:
            message_text = f"Model {path.name} must be an ONNX file, got a malformed message."
            raise LoadError(message_text) from error
    return model


def _rewrite_model(data: mmap.mmap, location: str) -> bytes:
    parts = []
    for field in _fields(data, 0, len(data)):
        if field.number == _MODEL_GRAPH:
            parts.append(_message(_MODEL_GRAPH, _rewrite_graph(data, field, location)))
        else:
            parts.append(data[field.begin : field.end])
    return b"".join(parts)


def _rewrite_graph(data: mmap.mmap, graph: _Field, location: str) -> bytes:
    parts = []
    for field in _fields(data, graph.data, graph.end):
        large = field.end - field.data >= _SMALLEST_BYTES
        if field.number == _GRAPH_INITIALIZER and large:
            parts.append(_message(_GRAPH_INITIALIZER, _rewrite_tensor(data, field, location)))
        else:
            parts.append(data[field.begin : field.end])
    return b"".join(parts)


def _rewrite_tensor(data: mmap.mmap, tensor: _Field, location: str) -> bytes:
    parts = []
    for field in _fields(data, tensor.data, tensor.end):
        if field.number != _TENSOR_RAW_DATA:
            parts.append(data[field.begin : field.end])
            continue
        entries = {"location": location, "offset": field.data, "length": field.end - field.data}
        for key, value in entries.items():
            entry = _text(_ENTRY_KEY, key) + _text(_ENTRY_VALUE, str(value))
            parts.append(_message(_TENSOR_EXTERNAL, entry))
        parts.append(_varint(_TENSOR_LOCATION << 3 | _VARINT) + _varint(_EXTERNAL))
    return b"".join(parts)


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[_Field]:
    place = begin
    while place < end:
        start = place
        tag, place = _read_varint(data, place)
        kind = tag & 7
        contents = place
        if kind == _VARINT:
            _, place = _read_varint(data, place)
        elif kind == _BYTES:
            size, contents = _read_varint(data, place)
            place = contents + size
        else:
            place += _SIZES[kind]
        if place > end:
            raise ValueError("a field reaches beyond its message")
        yield _Field(tag >> 3, start, contents, place)


def _read_varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, contents: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(contents)) + contents


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())
