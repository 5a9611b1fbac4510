"""Reading an ONNX file without its weights, so that looking into a large one costs little.

A protobuf message is a sequence of fields, each a tag and a value, in any order. Those that hold
the elements of an initializer are passed over; everything else is parsed as usual.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_GRAPH: Final = 7  # of ModelProto
_INITIALIZER: Final = 5  # of GraphProto
# Of TensorProto: float_data, int32_data, int64_data, raw_data, double_data, uint64_data.
_ELEMENTS: Final = frozenset({4, 5, 7, 9, 10, 11})


def load_outline(path: Path) -> onnx.ModelProto:
    """The model in a file; its initializers have names, types and shapes, but no elements.

    External data is not looked for.

    Raises:
        ValueError: The file ends within a field, or holds something else than fields.
        google.protobuf.message.DecodeError: It holds another message.
        OSError: It cannot be read.
    """
    import onnx

    with path.open("rb") as file:
        end = path.stat().st_size
        model = onnx.ModelProto()
        model.ParseFromString(_model(file, end))
        return model


def _model(file: IO[bytes], end: int) -> bytes:
    parts = []
    for number, start, value, stop in _fields(file, end):
        if number == _GRAPH:
            parts.append(_nested(_GRAPH, _graph(file, value, stop)))
        else:
            parts.append(_bytes(file, start, stop))
    return b"".join(parts)


def _graph(file: IO[bytes], start: int, end: int) -> bytes:
    file.seek(start)
    parts = []
    for number, first, value, stop in _fields(file, end):
        if number == _INITIALIZER:
            parts.append(_nested(_INITIALIZER, _tensor(file, value, stop)))
        else:
            parts.append(_bytes(file, first, stop))
    return b"".join(parts)


def _tensor(file: IO[bytes], start: int, end: int) -> bytes:
    file.seek(start)
    return b"".join(
        _bytes(file, first, stop)
        for number, first, _, stop in _fields(file, end)
        if number not in _ELEMENTS
    )


def _fields(file: IO[bytes], end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field from where the file is: its number, and where it, its value and the next begin."""
    start = file.tell()
    while start < end:
        tag = _read_varint(file)
        size = _value_size(file, tag & 7)
        value = file.tell()
        if value + size > end:
            message = f"a field of {size} bytes where {max(0, end - value)} are left"
            raise ValueError(message)
        yield tag >> 3, start, value, value + size
        start = value + size
        file.seek(start)


def _value_size(file: IO[bytes], wire_type: int) -> int:
    """Bytes of the value that follows; those of a varint are read."""
    if wire_type == _LENGTH_DELIMITED:
        return _read_varint(file)
    if wire_type == _VARINT:
        _read_varint(file)
        return 0
    if wire_type not in _FIXED_SIZES:
        raise ValueError(f"no ONNX model: a field of wire type {wire_type}")
    return _FIXED_SIZES[wire_type]


def _read_varint(file: IO[bytes]) -> int:
    value, shift = 0, 0
    while shift < 64:  # ten bytes at most
        byte = file.read(1)
        if not byte:
            raise ValueError("a file that ends within a field")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
    raise ValueError("no ONNX model: a number of more than 64 bits")


def _bytes(file: IO[bytes], start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)


def _nested(number: int, message: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(message)) + message


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
