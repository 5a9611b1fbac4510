"""Every consumer of the operator knows the attributes, inputs and outputs of the operator page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest
import torch
from nvcc_build import nvcc_library
from operator_page import attribute_table, input_names, output_names
from ort.attention_session import PROVIDERS, attention_model

from qkexport.native import find_library
from qkexport.onnx_function import attention_function
from qkexport.reference import signature_of
from qkexport.run.plugin_attention import EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY
from qkexport.run.plugin_host import HOST_LIBRARY, PluginHost
from qkexport.spec import OP_TYPE, SPELLING_ATTRIBUTES, AttentionSpec
from qkexport.torch_onnx import _ALL_OUTPUTS

HEADERS = Path(__file__).parents[2] / "plugins" / "include" / "qkexport" / "op"
ATTRIBUTES = attribute_table()
MEANINGS = [row.name for row in ATTRIBUTES if row.name not in SPELLING_ATTRIBUTES]
ORT_LIBRARIES = (
    "libqkexport_ort.so",
    "libqkexport_ort_plugin.so",
    "libqkexport_ort_cuda_emulated.so",
)
SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.5)
INPUTS = {
    "query": torch.zeros(2, 3, 32),
    "key": torch.zeros(2, 3, 16),
    "value": torch.zeros(2, 3, 16),
}


def _library(name: str) -> Path:
    path = find_library(name)
    if path is None:
        pytest.skip(f"not built: {name}")
    return path


def test_the_exporters_schema_has_the_attributes_inputs_and_outputs_of_the_page() -> None:
    schema = _ALL_OUTPUTS.op_schema
    assert schema is not None
    assert {name: str(attr.type).split(".")[-1] for name, attr in schema.attributes.items()} == {
        row.name: row.kind for row in ATTRIBUTES
    }
    assert all(attribute.required for attribute in schema.attributes.values())
    assert tuple(parameter.name for parameter in schema.inputs) == input_names()
    assert tuple(parameter.name for parameter in schema.outputs) == output_names()


def test_function_bodies_declare_the_attributes_of_the_page() -> None:
    function = attention_function(signature_of(SPEC, INPUTS, ("output",)), opset=24)
    assert {name: attr.type.name for name, attr in function.attributes.items()} == {
        row.name: row.kind for row in ATTRIBUTES
    }


@pytest.mark.parametrize("name", [EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY])
def test_the_plugin_has_exactly_the_fields_of_the_page(name: str) -> None:
    _library(HOST_LIBRARY)
    plugin = nvcc_library(name) if name == PLUGIN_LIBRARY else _library(name)
    fields = PluginHost(plugin).field_types(OP_TYPE)
    assert list(fields.items()) == [(row.name, row.kind) for row in ATTRIBUTES]


def test_the_shared_header_reads_every_attribute_of_the_page_with_its_type() -> None:
    text = (HEADERS / "spec.h").read_text()
    kinds = {
        "read_at_least": "INT",
        "read_bool": "INT",
        "read_float": "FLOAT",
        "read_not_negative": "FLOAT",
        "check_spelling": "STRING",
    }
    calls = re.findall(r"(\w+)(?:<\w+>)?\(reader, \"(\w+)\"", text)
    found = {name: kinds.get(function, "STRING") for function, name in calls}
    roles = {"input_roles", "output_roles"}  # those are roles.h's
    assert found == {row.name: row.kind for row in ATTRIBUTES if row.name not in roles}


def test_the_shared_header_spells_values_as_the_page_does() -> None:
    text = (HEADERS / "spec.h").read_text()
    found = re.findall(r"read_enum<\w+>\(reader, \"(\w+)\",\s*\{([^}]*)\}", text)
    spelled = {name: ", ".join(re.findall(r"\"(\w+)\"", values)) for name, values in found}
    page = {row.name: row.values for row in ATTRIBUTES if row.name in spelled}
    assert spelled == page
    assert len(spelled) == 6


def test_the_shared_header_names_inputs_and_outputs_as_the_page_does() -> None:
    text = (HEADERS / "roles.h").read_text()
    for array, names in (("kInputNames", input_names()), ("kOutputNames", output_names())):
        block = re.search(rf"{array}\[\w+\] = \{{([^}}]*)\}}", text)
        assert block is not None
        assert tuple(re.findall(r"\"(\w+)\"", block[1])) == names


def _open(library: str, attributes: dict[str, Any]) -> None:
    path = _library(library)
    if library == "libqkexport_ort_plugin.so":
        import ctypes

        plugin = str(_library(EMULATED_PLUGIN_LIBRARY)).encode()
        ctypes.CDLL(str(path)).qkexport_ort_plugin_use(plugin)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(path))
    model = attention_model(SPEC, INPUTS, attributes=attributes)
    ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)


@pytest.mark.parametrize("library", ORT_LIBRARIES)
def test_every_kernel_of_onnx_runtime_needs_every_attribute_that_has_a_meaning(
    library: str,
) -> None:
    _open(library, {})
    for name in MEANINGS:
        with pytest.raises(Exception, match=f"every attribute written out, got none for {name}"):
            _open(library, {name: None})


@pytest.mark.parametrize("library", ORT_LIBRARIES)
def test_every_kernel_of_onnx_runtime_reads_how_its_tensors_are_spelled(library: str) -> None:
    for name in SPELLING_ATTRIBUTES:
        with pytest.raises(Exception, match=name):
            _open(library, {name: "wrong"})
