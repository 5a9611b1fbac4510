"""Why TensorRT did not find the plugin of a node: three causes, three remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from qkexport.engine.bindings import Bindings
from qkexport.errors import BuildError
from qkexport.spec import OP_TYPE, OP_VERSION

if TYPE_CHECKING:
    import tensorrt as trt

_NOT_FOUND: Final = "plugin not found"


def plugin_error(bindings: Bindings, error: trt.ParserError) -> BuildError | None:
    """The error of a node whose plugin was not found; None for any other parser error."""
    if _NOT_FOUND not in error.desc().lower():
        return None
    operator, node = error.node_operator(), error.node_name()
    message = f"Node {node!r} must be an operator or plugin that TensorRT has, got {operator}."
    if operator != OP_TYPE:
        return BuildError(
            message,
            note="TensorRT knows no operator of that name, and no plugin library brings it.",
            hint="replace the node in the model, or load the library that has its plugin.",
        )
    registered = [
        f"version {creator.plugin_version} in namespace {creator.plugin_namespace!r}"
        for creator in plugin_creators(bindings.get_plugin_registry())
    ]
    if not registered:
        return BuildError(
            message,
            note="no library with that plugin is loaded.",
            hint="qkexport doctor says where the plugin library is and how to build it.",
        )
    return BuildError(
        message,
        note=f"the loaded plugin is {', '.join(registered)}; the model asks for version "
        f"{OP_VERSION} without a namespace.",
        hint="convert the model again, or load the library of the same version.",
    )


def plugin_creators(registry: trt.IPluginRegistry) -> list[trt.IPluginCreatorV3One]:
    """Creators in a registry that have the operator's name."""
    creators = [cast("trt.IPluginCreatorV3One", creator) for creator in registry.all_creators]
    return [creator for creator in creators if creator.name == OP_TYPE]
