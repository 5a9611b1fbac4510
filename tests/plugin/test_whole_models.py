"""Complete models with their attentions on the plugin, held against PyTorch."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
import torch
from zoo import language, papers, streams, vision
from zoo.family import Family

from qkexport.conversion import convert
from qkexport.errors import UnsupportedModelError
from qkexport.load import TorchSource
from qkexport.native import find_library
from qkexport.proof.parity import parity
from qkexport.proof.results import Verdict
from qkexport.run import open_runner
from qkexport.run.plugin_model import ORT_PLUGIN_LIBRARY

FAMILIES = {
    family.name: family
    for module in (language, papers, streams, vision)
    for family in module.FAMILIES
}
WHOLE = ("qwen3", "qwen3 float16", "gemma 3", "timm vit", "swin v2", "flux", "henry 2020")


@pytest.fixture(autouse=True)
def _operators_built(_built: None) -> None:
    if find_library(ORT_PLUGIN_LIBRARY) is None:
        pytest.skip(f"not built: {ORT_PLUGIN_LIBRARY}")


def _converted(family: Family, path: Path) -> TorchSource:
    sample = family.build("sdpa")
    source = TorchSource(
        family.name, sample.module, sample.args, dict(sample.kwargs), sample.dynamic_shapes
    )
    exported = torch.export.export(
        sample.module, sample.args, dict(sample.kwargs), dynamic_shapes=sample.dynamic_shapes
    )
    assert convert(exported, path, require_fused=family.fused, verify=False)
    return source


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_model_matches_pytorch_with_its_attentions_on_the_plugin(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    source = _converted(FAMILIES[name], path)
    result = parity(source, [path], backends=("ort-stock", "plugin"), require=("plugin",))
    verdicts = {candidate.backend: candidate.verdict for candidate in result.candidates}
    assert verdicts == {"ort-stock": Verdict.MATCHED, "plugin": Verdict.MATCHED}


def test_shapes_may_change_between_calls(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    _converted(FAMILIES["henry 2020"], path)
    with open_runner(path, "plugin") as plugin, open_runner(path, "ort-stock") as stock:
        name, output = stock.inputs[0].name, stock.outputs[0].name
        for shape in ((2, 7, 40), (1, 1, 40), (3, 33, 40), (2, 7, 40)):
            x = torch.randn(shape)
            got = plugin.run({name: x})[output]
            torch.testing.assert_close(got, stock.run({name: x})[output], rtol=1e-4, atol=1e-5)


def test_a_changed_attribute_reaches_the_plugin(tmp_path: Path) -> None:
    path, changed = tmp_path / "model.onnx", tmp_path / "changed.onnx"
    _converted(FAMILIES["henry 2020"], path)
    model = ir.load(path)
    (node,) = [node for node in model.graph if node.op_type == "QKNormAttention"]
    node.attributes["scale"] = ir.AttrFloat32("scale", 1.5)
    ir.save(model, changed)
    x = torch.randn(2, 7, 40)
    outputs = []
    for file in (path, changed):
        with open_runner(file, "plugin") as runner:
            outputs.append(runner.run({runner.inputs[0].name: x})[runner.outputs[0].name])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-3


def test_a_model_without_attention_on_the_plugin_proves_nothing(tmp_path: Path) -> None:
    described = onnx.helper.make_tensor_value_info
    x, y = (described(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    opsets = [onnx.helper.make_opsetid("", 24)]
    path = tmp_path / "relu.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    with (
        open_runner(path, "plugin") as runner,
        pytest.raises(UnsupportedModelError, match="attentions that run on the plugin"),
    ):
        runner.run({"x": torch.ones(2)})
