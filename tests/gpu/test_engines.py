"""Engines on a real GPU: built for it, run on it, and held against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_models import WIDTH, save_cross, save_fused, spec_with

import qkexport
from qkexport import BuildOptions
from qkexport.engine.bindings import Flavour, is_installed
from qkexport.engine.device import find_gpu
from qkexport.engine.options import parse_shapes
from qkexport.errors import LoadError
from qkexport.export import save_model, to_form
from qkexport.run import TrtRunner, open_runner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_gpu() is None, reason="there is no NVIDIA GPU"),
]
RUNTIMES = [
    pytest.param(
        flavour,
        marks=[] if flavour is Flavour.TENSORRT_RTX else pytest.mark.tensorrt,
    )
    for flavour in Flavour
]
SHAPES = parse_shapes(["x=1x1x32,2x59x32,3x97x32"])


def _engine(runtime: str, model: Path, attention: str = "auto") -> Path:
    if not is_installed(Flavour(runtime)):
        pytest.skip(f"{runtime} is not installed")
    output = model.with_suffix(".engine")
    options = BuildOptions(profiles=SHAPES)
    assert qkexport.build(model, output, runtime=runtime, attention=attention, options=options)
    return output


def _reference(model: Path, x: torch.Tensor) -> torch.Tensor:
    import onnx_ir as ir

    portable = model.with_name("portable.onnx")
    save_model(to_form(ir.load(model), "portable"), portable)
    with open_runner(portable, "ort-stock") as runner:
        return runner.run({"x": x})["y"]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("cuda_graph", [False, True])
@pytest.mark.parametrize("causal", ["none", "upper_left"])
def test_an_engine_computes_what_onnx_runtime_computes(
    tmp_path: Path, runtime: str, cuda_graph: bool, causal: str
) -> None:
    model = save_fused(tmp_path / "m.onnx", spec_with(causal=causal))
    with TrtRunner(_engine(runtime, model), cuda_graph=cuda_graph) as runner:
        for sizes in ((1, 1), (2, 59), (3, 97), (3, 97), (3, 97)):
            x = torch.randn(*sizes, WIDTH).half()
            expected = _reference(model, x)
            torch.testing.assert_close(runner.run({"x": x})["y"], expected, rtol=1e-2, atol=2e-3)


@pytest.mark.tensorrt
@pytest.mark.parametrize("attention", ["plugin", "native"])
def test_plugin_and_native_agree(tmp_path: Path, attention: str) -> None:
    model = save_fused(tmp_path / "m.onnx")
    x = torch.randn(2, 59, WIDTH).half()
    with TrtRunner(_engine("tensorrt", model, attention)) as runner:
        assert runner.manifest.attention == attention
        torch.testing.assert_close(
            runner.run({"x": x})["y"], _reference(model, x), rtol=1e-2, atol=2e-3
        )


def test_rtx_refits_engines_where_there_is_a_driver(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "m.onnx")
    gpu = find_gpu()
    assert gpu is not None
    options = BuildOptions(targets=(gpu.target,), refit=True)
    assert qkexport.build(model, tmp_path / "m.engine", runtime="tensorrt-rtx", options=options)


def test_an_engine_for_another_gpu_is_refused_by_its_manifest(tmp_path: Path) -> None:
    gpu = find_gpu()
    assert gpu is not None
    other = "sm_75" if gpu.target != "sm_75" else "sm_89"
    model = save_cross(tmp_path / "m.onnx", spec_with())
    options = BuildOptions(targets=(other,))
    qkexport.build(model, tmp_path / "m.engine", runtime="tensorrt-rtx", options=options)
    with pytest.raises(LoadError, match=f"must run on {other}, got {gpu.target}"):
        TrtRunner(tmp_path / "m.engine")
