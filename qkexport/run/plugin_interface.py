"""The C interface of libqkexport_host.so; see plugins/host/qkexport_host.h."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Final

from qkexport.spec import AttributeValue

_MAX_DIMS: Final = 8

# nvinfer1::PluginFieldType
_FLOAT32_FIELD, _INT32_FIELD, _CHAR_FIELD = 1, 5, 6
_FIELD_KINDS: Final = {_INT32_FIELD: "INT", _FLOAT32_FIELD: "FLOAT", _CHAR_FIELD: "STRING"}

# nvinfer1::DataType by numpy's (and ml_dtypes') names.
DATA_TYPES: Final = {"float32": 0, "float16": 1, "bool": 4, "bfloat16": 7, "int64": 8}
DTYPE_NAMES: Final = {number: name for name, number in DATA_TYPES.items()}


class FieldStruct(ctypes.Structure):
    """QkexportPluginField."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("length", ctypes.c_int32),
    )


class DimsStruct(ctypes.Structure):
    """QkexportPluginDims."""

    _fields_ = (("rank", ctypes.c_int32), ("sizes", ctypes.c_int64 * _MAX_DIMS))


class InputStruct(ctypes.Structure):
    """QkexportPluginInput."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("min", DimsStruct),
        ("opt", DimsStruct),
        ("max", DimsStruct),
    )


def to_dims(shape: Sequence[int]) -> DimsStruct:
    """A shape as the interface takes it."""
    return DimsStruct(len(shape), (ctypes.c_int64 * _MAX_DIMS)(*shape))


def to_shape(dims: DimsStruct) -> tuple[int, ...]:
    """A shape as the interface returns it."""
    return tuple(dims.sizes[: dims.rank])


class PluginFields:
    """Attributes as plugin fields, with the memory that the fields point to.

    Args:
        attributes: As `AttentionSpec.to_attributes` gives them: INT becomes int32 as TensorRT's
            parser narrows it, STRING characters without a terminator.
    """

    def __init__(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._kept: list[object] = []
        self.array = (FieldStruct * len(attributes))(
            *(self._field(name, value) for name, value in attributes.items())
        )

    def _field(self, name: str, value: AttributeValue) -> FieldStruct:
        if isinstance(value, str):
            text = value.encode()
            return self._keep(name, ctypes.create_string_buffer(text), _CHAR_FIELD, len(text))
        if isinstance(value, int):
            return self._keep(name, ctypes.c_int32(value), _INT32_FIELD, 1)
        return self._keep(name, ctypes.c_float(value), _FLOAT32_FIELD, 1)

    def _keep(self, name: str, data: ctypes._CData, kind: int, length: int) -> FieldStruct:
        self._kept.append(data)
        return FieldStruct(name.encode(), ctypes.addressof(data), kind, length)


def field_kinds(text: str) -> dict[str, str]:
    """INT, FLOAT or STRING by name, of the text that `qkexport_host_field_names` returns."""
    pairs = (item.split("=") for item in text.split(",") if item)
    return {name: _FIELD_KINDS[int(number)] for name, number in pairs}


def declare(library: ctypes.CDLL) -> None:
    """Tells ctypes the types of every function."""
    pointer, number, text = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
    fields, inputs, dims = (ctypes.POINTER(kind) for kind in (FieldStruct, InputStruct, DimsStruct))
    signatures: dict[str, tuple[object, list[object]]] = {
        "error": (text, []),
        "open": (pointer, [text]),
        "build": (
            pointer,
            [pointer, text, text, text, fields, number, inputs, number, number],
        ),
        "field_names": (text, [pointer, text, text, text]),
        "destroy": (None, [pointer]),
        "num_outputs": (number, [pointer]),
        "output_type": (number, [pointer, number]),
        "workspace_size": (ctypes.c_size_t, [pointer, number]),
        "aliased_input": (number, [pointer, number]),
        "metadata": (text, [pointer]),
        "timing_cache_id": (text, [pointer]),
        "attach": (pointer, [pointer, number]),
        "detach": (None, [pointer]),
        "set_shapes": (number, [pointer, dims, number, dims]),
        "enqueue": (number, [pointer, pointer, pointer, pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"qkexport_host_{name}")
        function.restype = result
        function.argtypes = arguments
