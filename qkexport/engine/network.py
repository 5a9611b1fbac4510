"""An ONNX file as a TensorRT network, every input of it used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.engine.bindings import Bindings
from qkexport.engine.diagnose import build_error
from qkexport.engine.logger import Messages
from qkexport.engine.plugin_lookup import plugin_error
from qkexport.errors import BuildError

if TYPE_CHECKING:
    import tensorrt as trt

# The parser warns of what it drops, and goes on.
_DROPPED: Final = re.compile(
    r"unused input: *(?P<name>.*)|(?P<rule>.*\bignor(?:es|ed|ing)\b.*)", re.I
)


def parse_network(
    bindings: Bindings,
    builder: trt.Builder,
    logger: trt.ILogger,
    path: Path,
    name: str,
    messages: Messages,
) -> trt.INetworkDefinition:
    """Parses a model, strongly typed: precision is what the model says.

    Args:
        bindings: The flavour.
        builder: Makes the network.
        logger: Fills `messages`.
        path: The model; read as a file, because more than 2 GB cannot be read otherwise.
        name: Of the model, for messages.
        messages: What TensorRT said so far.

    Raises:
        BuildError: TensorRT cannot parse the model, or makes nothing of it.
    """
    strongly_typed = int(bindings.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(1 << strongly_typed)
    parser = bindings.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        raise _parse_error(bindings, parser, name, messages)
    if network.num_layers == 0:
        message = f"Model {name} must give TensorRT layers to build, got none."
        raise BuildError(message, note="the file is empty, truncated or over 2 GB in one piece.")
    return network


def refuse_dropped(model: str, messages: Messages) -> None:
    """Fails on warnings that say that part of the model has no effect.

    Raises:
        BuildError: Names the input or quotes the warning.
    """
    for text in messages.warnings:
        match = _DROPPED.search(text)
        if match is None:
            continue
        dropped = match["name"] or match["rule"]
        message = f"Model {model} must have no part that TensorRT drops, got {dropped.strip()}."
        hint = "remove the input from the model, or lower the model for TensorRT."
        raise BuildError(message, note=f"TensorRT warns: {text.strip()}", hint=hint)


def _parse_error(
    bindings: Bindings, parser: trt.OnnxParser, name: str, messages: Messages
) -> BuildError:
    errors: list[trt.ParserError] = [parser.get_error(index) for index in range(parser.num_errors)]
    for error in errors:
        found = plugin_error(bindings, error)
        if found is not None:
            return found
    said = [
        f"{error.desc()} at {error.node_operator()} node {error.node_name()!r}" for error in errors
    ]
    return build_error(name, "must be parsed by TensorRT", said or messages.errors)
