"""Drives a TensorRT plugin library through its whole life, without TensorRT.

The C++ side is plugins/host (libqkexport_host.so): creator, fields, output shapes, formats,
configuration, workspace, serialization and re-creation, attachment to contexts, enqueue.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from qkexport.errors import BackendUnavailableError, QkexportError
from qkexport.native import find_library
from qkexport.spec import AttributeValue

HOST_LIBRARY: Final = "libqkexport_host.so"
_MAX_DIMS: Final = 8

# nvinfer1::PluginFieldType
_FLOAT32_FIELD, _INT32_FIELD, _CHAR_FIELD = 1, 5, 6

# nvinfer1::DataType by numpy's (and ml_dtypes') names.
DATA_TYPES: Final = {"float32": 0, "float16": 1, "bool": 4, "bfloat16": 7, "int64": 8}
DTYPE_NAMES: Final = {number: name for name, number in DATA_TYPES.items()}


class PluginError(QkexportError):
    """A plugin refused its fields, types, shapes or a launch; the text is the plugin's own."""


@dataclasses.dataclass(frozen=True)
class PluginInput:
    """Type and profile of one input: smallest, best and largest shape.

    Attributes:
        dtype: A name of `DATA_TYPES`.
        min: Smallest shape.
        opt: The shape to be fastest at.
        max: Largest shape.
    """

    dtype: str
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    @classmethod
    def fixed(cls, dtype: str, shape: Sequence[int]) -> PluginInput:
        """An input that always has one shape."""
        return cls(dtype, tuple(shape), tuple(shape), tuple(shape))


class _Field(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("length", ctypes.c_int32),
    )


class _Dims(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int32), ("sizes", ctypes.c_int64 * _MAX_DIMS))


class _Input(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("min", _Dims), ("opt", _Dims), ("max", _Dims))


def _dims(shape: Sequence[int]) -> _Dims:
    return _Dims(len(shape), (ctypes.c_int64 * _MAX_DIMS)(*shape))


def _shape(dims: _Dims) -> tuple[int, ...]:
    return tuple(dims.sizes[: dims.rank])


class PluginFields:
    """Attributes as plugin fields, with the memory that the fields point to.

    Args:
        attributes: As `AttentionSpec.to_attributes` gives them: INT becomes int32 as TensorRT's
            parser narrows it, STRING characters without a terminator.
    """

    def __init__(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._kept: list[object] = []
        self.array = (_Field * len(attributes))(
            *(self._field(name, value) for name, value in attributes.items())
        )

    def _field(self, name: str, value: AttributeValue) -> _Field:
        if isinstance(value, str):
            text = value.encode()
            return self._keep(name, ctypes.create_string_buffer(text), _CHAR_FIELD, len(text))
        if isinstance(value, int):
            return self._keep(name, ctypes.c_int32(value), _INT32_FIELD, 1)
        return self._keep(name, ctypes.c_float(value), _FLOAT32_FIELD, 1)

    def _keep(self, name: str, data: ctypes._CData, kind: int, length: int) -> _Field:
        self._kept.append(data)
        return _Field(name.encode(), ctypes.addressof(data), kind, length)


class PluginHost:
    """A plugin library, opened as a plugin registry opens it.

    Args:
        plugin_library: Path of the library; it exports `getCreators`.

    Raises:
        BackendUnavailableError: The host or the plugin library cannot be loaded.
    """

    def __init__(self, plugin_library: Path) -> None:
        path = find_library(HOST_LIBRARY)
        if path is None:
            message = f"The plugin host must be built, got no {HOST_LIBRARY}."
            raise BackendUnavailableError(
                message, hint="pip install . (needs CMake and a compiler)"
            )
        self._c = ctypes.CDLL(str(path))
        _declare(self._c)
        self._library = self._c.qkexport_host_open(str(plugin_library).encode())
        if not self._library:
            raise BackendUnavailableError(self.error())

    def error(self) -> str:
        """What was refused last on this thread."""
        return str(self._c.qkexport_host_error().decode())

    def build(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue],
        inputs: Sequence[PluginInput],
        *,
        version: str = "1",
        namespace: str = "",
    ) -> PluginEngine:
        """Takes one plugin from its creator to a serialized and re-created engine.

        Raises:
            PluginError: The library has no such creator, or the plugin refuses.
        """
        fields = PluginFields(attributes)
        described = (_Input * len(inputs))(
            *(_Input(DATA_TYPES[x.dtype], _dims(x.min), _dims(x.opt), _dims(x.max)) for x in inputs)
        )
        handle = self._c.qkexport_host_build(
            self._library,
            name.encode(),
            version.encode(),
            namespace.encode(),
            fields.array,
            len(fields.array),
            described,
            len(inputs),
        )
        if not handle:
            raise PluginError(self.error())
        return PluginEngine(self, handle)

    @property
    def functions(self) -> ctypes.CDLL:
        """The C interface."""
        return self._c


class PluginEngine:
    """A built plugin; made by `PluginHost.build`."""

    def __init__(self, host: PluginHost, handle: int) -> None:
        self.host = host
        self._handle = handle
        functions = host.functions
        count = functions.qkexport_host_num_outputs(handle)
        types = [functions.qkexport_host_output_type(handle, index) for index in range(count)]
        self.output_dtypes = tuple(DTYPE_NAMES[number] for number in types)
        self.workspace_size = int(functions.qkexport_host_workspace_size(handle))
        self.metadata = str(functions.qkexport_host_metadata(handle).decode())

    def attach(self) -> PluginContext:
        """A new execution context, with a clone of the plugin of its own.

        Raises:
            PluginError: The plugin does not attach.
        """
        handle = self.host.functions.qkexport_host_attach(self._handle)
        if not handle:
            raise PluginError(self.host.error())
        return PluginContext(self, handle)

    def __del__(self) -> None:
        self.host.functions.qkexport_host_destroy(self._handle)


class PluginContext:
    """Runs a plugin; made by `PluginEngine.attach`."""

    def __init__(self, engine: PluginEngine, handle: int) -> None:
        self.engine = engine
        self._handle = handle

    def set_shapes(self, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Announces the input shapes of the next calls and returns the output shapes.

        Raises:
            PluginError: A shape lies outside the profile, or breaks the plugin's rules.
        """
        inputs = (_Dims * len(shapes))(*(_dims(shape) for shape in shapes))
        outputs = (_Dims * len(self.engine.output_dtypes))()
        functions = self.engine.host.functions
        if functions.qkexport_host_set_shapes(self._handle, inputs, len(shapes), outputs):
            raise PluginError(self.engine.host.error())
        return [_shape(dims) for dims in outputs]

    def enqueue(
        self, inputs: Sequence[int], outputs: Sequence[int], workspace: int, stream: int = 0
    ) -> None:
        """Enqueues one call.

        Args:
            inputs: Addresses on the plugin's device, in the order of the engine's inputs.
            outputs: Likewise.
            workspace: Address of `engine.workspace_size` bytes, aligned to 256.
            stream: A cudaStream_t.

        Raises:
            PluginError: The plugin reports a failure.
        """
        pointers = (ctypes.c_void_p * len(inputs))(*inputs)
        results = (ctypes.c_void_p * len(outputs))(*outputs)
        functions = self.engine.host.functions
        if functions.qkexport_host_enqueue(self._handle, pointers, results, workspace, stream):
            raise PluginError(self.engine.host.error())

    def __del__(self) -> None:
        self.engine.host.functions.qkexport_host_detach(self._handle)


def _declare(library: ctypes.CDLL) -> None:
    pointer, number, text = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
    fields, inputs, dims = (ctypes.POINTER(kind) for kind in (_Field, _Input, _Dims))
    signatures: dict[str, tuple[object, list[object]]] = {
        "error": (text, []),
        "open": (pointer, [text]),
        "build": (
            pointer,
            [pointer, text, text, text, fields, number, inputs, number],
        ),
        "destroy": (None, [pointer]),
        "num_outputs": (number, [pointer]),
        "output_type": (number, [pointer, number]),
        "workspace_size": (ctypes.c_size_t, [pointer]),
        "metadata": (text, [pointer]),
        "attach": (pointer, [pointer]),
        "detach": (None, [pointer]),
        "set_shapes": (number, [pointer, dims, number, dims]),
        "enqueue": (number, [pointer, pointer, pointer, pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"qkexport_host_{name}")
        function.restype = result
        function.argtypes = arguments
