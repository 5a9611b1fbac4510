"""What the inspector's JSON says about plugin layers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qkexport.engine.layers import check_layers, parse_layers


def _layer(name: str, kind: str, reads: str, writes: str, **more: str) -> dict[str, Any]:
    tensors = [[{"Name": item} for item in names.split()] for names in (reads, writes)]
    return {"Name": name, "LayerType": kind, "Inputs": tensors[0], "Outputs": tensors[1], **more}


PLUGIN = _layer("attention_0", "PluginV3", "q k v", "y", PluginType="QKNormAttention")
OTHER = _layer("nms", "PluginV3", "boxes", "kept", PluginType="EfficientNMS")
MATMUL = _layer("project", "gemm", "x", "q k v")


def _text(*layers: Any) -> str:
    return json.dumps({"Layers": list(layers), "Bindings": ["x", "y"]})


def test_an_engine_with_all_plugin_layers_passes() -> None:
    check = check_layers(parse_layers(_text(MATMUL, PLUGIN, OTHER)), 1)
    assert check.passed
    assert check.detail == "3 layers, 1 of them the plugin"


@pytest.mark.parametrize("layers", [[MATMUL], [MATMUL, OTHER], [PLUGIN, PLUGIN]])
def test_a_missing_or_surplus_plugin_layer_fails(layers: list[dict[str, Any]]) -> None:
    check = check_layers(parse_layers(_text(*layers)), 1)
    assert check.passed is False
    assert "of 1 plugin layers are in the engine" in check.detail


@pytest.mark.parametrize(
    "copy",
    [
        _layer("Reformatting CopyNode for Input", "Reformat", "q_other", "q"),
        _layer("Reformatting CopyNode for Output", "Reformat", "y", "y_other"),
    ],
)
def test_a_copy_next_to_the_plugin_fails(copy: dict[str, Any]) -> None:
    check = check_layers(parse_layers(_text(MATMUL, copy, PLUGIN)), 1)
    assert check.passed is False
    assert copy["Name"] in check.detail


def test_a_copy_elsewhere_passes() -> None:
    copy = _layer("Reformatting CopyNode", "Reformat", "image", "x")
    assert check_layers(parse_layers(_text(copy, MATMUL, PLUGIN)), 1).passed


def test_layers_of_little_verbosity_are_names() -> None:
    (layer,) = parse_layers(_text("attention_0"))
    assert (layer.name, layer.is_attention) == ("attention_0", False)


def test_a_plugin_without_a_type_is_known_by_its_name() -> None:
    named = _layer("QKNormAttention_3", "PluginV3", "q", "y")
    assert check_layers(parse_layers(_text(named)), 1).passed
