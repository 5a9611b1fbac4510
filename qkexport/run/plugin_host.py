"""Drives a TensorRT plugin library through its whole life, without TensorRT.

The C++ side is plugins/host (libqkexport_host.so): creator, fields, output shapes, formats,
configuration, workspace, serialization and re-creation, attachment to contexts, enqueue.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from qkexport.errors import BackendUnavailableError, QkexportError
from qkexport.native import find_library
from qkexport.run.plugin_interface import (
    DATA_TYPES,
    DTYPE_NAMES,
    DimsStruct,
    InputStruct,
    PluginFields,
    declare,
    field_kinds,
    to_dims,
    to_shape,
)
from qkexport.spec import AttributeValue

HOST_LIBRARY: Final = "libqkexport_host.so"


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

    def struct(self) -> InputStruct:
        """As the C interface takes it."""
        shapes = (to_dims(shape) for shape in (self.min, self.opt, self.max))
        return InputStruct(DATA_TYPES[self.dtype], *shapes)


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
        declare(self._c)
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
        *profiles: Sequence[PluginInput],
        version: str = "1",
        namespace: str = "",
    ) -> PluginEngine:
        """Takes one plugin from its creator to a serialized and re-created engine.

        Args:
            name: Of the plugin.
            attributes: Its fields.
            profiles: The inputs in each optimization profile, in the order of the plugin.
            version: Of the plugin.
            namespace: Of the plugin.

        Raises:
            PluginError: The library has no such creator, or the plugin refuses.
        """
        fields = PluginFields(attributes)
        inputs = [x.struct() for profile in profiles for x in profile]
        described = (InputStruct * len(inputs))(*inputs)
        handle = self._c.qkexport_host_build(
            self._library,
            name.encode(),
            version.encode(),
            namespace.encode(),
            fields.array,
            len(fields.array),
            described,
            len(profiles[0]) if profiles else 0,
            len(profiles),
        )
        if not handle:
            raise PluginError(self.error())
        return PluginEngine(self, handle, len(profiles))

    def field_types(self, name: str, *, version: str = "1", namespace: str = "") -> dict[str, str]:
        """The fields that a creator names: INT, FLOAT or STRING by name, in its order.

        Raises:
            PluginError: The library has no such creator.
        """
        names = (part.encode() for part in (name, version, namespace))
        found = self._c.qkexport_host_field_names(self._library, *names)
        if found is None:
            raise PluginError(self.error())
        return field_kinds(found.decode())

    @property
    def functions(self) -> ctypes.CDLL:
        """The C interface."""
        return self._c


@functools.cache
def open_plugin_library(path: Path) -> PluginHost:
    """The library at a path, opened once and kept: plugins may live until the process ends.

    Raises:
        BackendUnavailableError: The host or the plugin library cannot be loaded.
    """
    return PluginHost(path)


class PluginEngine:
    """A built plugin; made by `PluginHost.build`.

    Attributes:
        output_dtypes: Names of the output types.
        workspace_sizes: Bytes of workspace that each profile needs.
        aliased_inputs: For each output the input whose memory it may share, or -1.
        metadata: What the plugin tells an inspector.
        timing_cache_id: What a timing cache knows the plugin by.
    """

    def __init__(self, host: PluginHost, handle: int, num_profiles: int = 1) -> None:
        self.host = host
        self._handle = handle
        functions = host.functions
        count = functions.qkexport_host_num_outputs(handle)
        types = [functions.qkexport_host_output_type(handle, index) for index in range(count)]
        self.output_dtypes = tuple(DTYPE_NAMES[number] for number in types)
        self.workspace_sizes = tuple(
            int(functions.qkexport_host_workspace_size(handle, profile))
            for profile in range(num_profiles)
        )
        self.aliased_inputs = tuple(
            int(functions.qkexport_host_aliased_input(handle, index)) for index in range(count)
        )
        self.metadata = str(functions.qkexport_host_metadata(handle).decode())
        self.timing_cache_id = str(functions.qkexport_host_timing_cache_id(handle).decode())

    @property
    def workspace_size(self) -> int:
        """Bytes of workspace that serve every profile."""
        return max(self.workspace_sizes)

    def attach(self, profile: int = 0) -> PluginContext:
        """A new execution context, with a clone of the plugin of its own.

        Args:
            profile: Index of the optimization profile that its shapes lie in.

        Raises:
            PluginError: The plugin does not attach, or there is no such profile.
        """
        handle = self.host.functions.qkexport_host_attach(self._handle, profile)
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
        inputs = (DimsStruct * len(shapes))(*(to_dims(shape) for shape in shapes))
        outputs = (DimsStruct * len(self.engine.output_dtypes))()
        functions = self.engine.host.functions
        if functions.qkexport_host_set_shapes(self._handle, inputs, len(shapes), outputs):
            raise PluginError(self.engine.host.error())
        return [to_shape(dims) for dims in outputs]

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
