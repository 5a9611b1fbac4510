"""Writing an ONNX file without building it in memory first.

A protobuf message is a sequence of fields, each a tag, a length and bytes, in any order. Everything
but the large initializers is serialized as usual; those follow as further `initializer` fields of
the graph, their bytes straight from where they are.
"""

from __future__ import annotations

from typing import IO, Final

import onnx
import onnx_ir as ir

_LENGTH_DELIMITED: Final = 2
_STREAMED_BYTES: Final = 4096  # smaller tensors cost nothing to serialize


def write_model(model: ir.Model, file: IO[bytes]) -> None:
    """Writes a model as one file.

    Args:
        model: Stays as it is.
        file: Open for writing at its beginning.
    """
    large = {
        name: value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and _is_large(value.const_value)
    }
    tensors = {name: value.const_value for name, value in large.items()}
    try:
        for name, value in large.items():
            value.const_value = _placeholder(name, tensors[name])
        proto = ir.to_proto(model)
    finally:
        for name, value in large.items():
            value.const_value = tensors[name]
    _write(proto, {name: t for name, t in tensors.items() if t is not None}, file)


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype != ir.DataType.STRING and tensor.nbytes >= _STREAMED_BYTES


def _placeholder(name: str, tensor: ir.TensorProtocol | None) -> ir.TensorProtocol:
    """A tensor of the same type and name whose bytes are not there yet."""
    assert tensor is not None
    return ir.ExternalTensor("", 0, 0, tensor.dtype, shape=tensor.shape, name=name)  # type: ignore[arg-type]


def _write(proto: onnx.ModelProto, tensors: dict[str, ir.TensorProtocol], file: IO[bytes]) -> None:
    graph = proto.graph
    headers = [tensor for tensor in graph.initializer if tensor.name in tensors]
    kept = [tensor for tensor in graph.initializer if tensor.name not in tensors]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    prefixes = [_initializer_prefix(header, tensors[header.name].nbytes) for header in headers]
    small_part = graph.SerializeToString()
    size = len(small_part)
    for header, prefix in zip(headers, prefixes, strict=True):
        size += len(prefix) + tensors[header.name].nbytes
    proto.ClearField("graph")
    file.write(proto.SerializeToString())
    file.write(_key(onnx.ModelProto.GRAPH_FIELD_NUMBER) + _varint(size) + small_part)
    for header, prefix in zip(headers, prefixes, strict=True):
        file.write(prefix)
        _write_bytes(tensors[header.name], file)


def _write_bytes(tensor: ir.TensorProtocol, file: IO[bytes]) -> None:
    if hasattr(tensor, "tofile"):
        tensor.tofile(file)
    else:
        file.write(tensor.tobytes())


def _initializer_prefix(header: onnx.TensorProto, nbytes: int) -> bytes:
    """All of an `initializer` field up to its raw bytes."""
    header.ClearField("external_data")
    header.ClearField("data_location")
    fields: bytes = header.SerializeToString()
    fields += _key(onnx.TensorProto.RAW_DATA_FIELD_NUMBER) + _varint(nbytes)
    length = len(fields) + nbytes
    return _key(onnx.GraphProto.INITIALIZER_FIELD_NUMBER) + _varint(length) + fields


def _key(field_number: int) -> bytes:
    return _varint(field_number << 3 | _LENGTH_DELIMITED)


def _varint(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
