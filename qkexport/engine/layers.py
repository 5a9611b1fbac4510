"""What TensorRT's inspector says about an engine's layers; it needs the GPU."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from qkexport.engine.bindings import Bindings
from qkexport.engine.device import find_gpu
from qkexport.engine.logger import listening, shared_logger
from qkexport.engine.result import Check
from qkexport.spec import OP_TYPE

_NAME = "inspector"


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of an engine.

    Attributes:
        name: As TensorRT calls it.
        kind: TensorRT's type, such as `PluginV3` or `Reformat`.
        plugin: Name of its plugin, or "".
        inputs: Names of the tensors it reads.
        outputs: Names of the tensors it writes.
    """

    name: str
    kind: str
    plugin: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def is_attention(self) -> bool:
        """Is a QKNormAttention plugin."""
        return self.kind.startswith("Plugin") and OP_TYPE in (self.plugin or self.name)


def inspect_layers(bindings: Bindings, engine: Path, num_attentions: int) -> Check:
    """Looks into an engine where there is a GPU to load it.

    Args:
        bindings: The flavour that built it.
        engine: The file.
        num_attentions: How many plugin layers it must have.
    """
    if find_gpu() is None:
        return Check(_NAME, None, "there is no GPU that could load the engine")
    with listening() as messages:
        runtime = bindings.Runtime(shared_logger(bindings))
        loaded = runtime.deserialize_cuda_engine(engine.read_bytes())
        if loaded is None:
            said = messages.errors[-1] if messages.errors else "no message"
            return Check(_NAME, False, f"TensorRT does not load the engine: {said}")
        text = loaded.create_engine_inspector().get_engine_information(
            bindings.LayerInformationFormat.JSON
        )
    return check_layers(parse_layers(text), num_attentions)


def parse_layers(text: str) -> tuple[Layer, ...]:
    """Layers of the inspector's JSON; with little verbosity a layer is its bare name."""
    layers = json.loads(text).get("Layers", [])
    return tuple(_layer({"Name": item} if isinstance(item, str) else item) for item in layers)


def _layer(item: dict[str, Any]) -> Layer:
    return Layer(
        item.get("Name", ""),
        item.get("LayerType", ""),
        item.get("PluginType", ""),
        tuple(tensor.get("Name", "") for tensor in item.get("Inputs", [])),
        tuple(tensor.get("Name", "") for tensor in item.get("Outputs", [])),
    )


def check_layers(layers: tuple[Layer, ...], num_attentions: int) -> Check:
    """Checks that every plugin layer is there, and that no tensor is copied around one.

    Args:
        layers: Of the engine.
        num_attentions: How many plugin layers it must have.
    """
    attentions = [layer for layer in layers if layer.is_attention]
    if len(attentions) != num_attentions:
        detail = f"{len(attentions)} of {num_attentions} plugin layers are in the engine"
        return Check(_NAME, False, detail)
    read = {name for layer in attentions for name in layer.inputs}
    written = {name for layer in attentions for name in layer.outputs}
    copies = [
        layer.name
        for layer in layers
        if layer.kind == "Reformat" and (read & {*layer.outputs} or written & {*layer.inputs})
    ]
    if copies:
        return Check(_NAME, False, f"TensorRT copies tensors around the plugin: {copies[0]}")
    return Check(_NAME, True, f"{len(layers)} layers, {num_attentions} of them the plugin")
