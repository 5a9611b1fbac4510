"""The plugin inside TensorRT: parsed, built, inspected, run, refitted, and in other runtimes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from attention_cases import ALL_OUTPUTS, AttentionCase
from attention_grid import GridCase, pairwise_cases
from engine_models import WIDTH, save_fused, spec_with
from ort.attention_session import attention_model

from qkexport.engine.device import find_gpu
from qkexport.engine.plugin_library import find_plugin_library
from qkexport.export import save_model, to_form
from qkexport.native import find_library
from qkexport.reference import reference_attention
from qkexport.run import open_runner
from qkexport.run.plugin_attention import PLUGIN_LIBRARY
from qkexport.spec import AttentionSpec, Causal, KvCache

if importlib.util.find_spec("tensorrt") is None:
    pytest.skip(
        "TensorRT is not installed: pip install 'qkexport[tensorrt]'", allow_module_level=True
    )

import tensorrt as trt

from plugin.tensorrt_engine import Engine, Shapes, build, count_plugins, layers_of, parse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.tensorrt,
    pytest.mark.skipif(find_gpu() is None, reason="there is no NVIDIA GPU"),
    pytest.mark.skipif(find_library(PLUGIN_LIBRARY) is None, reason=f"no {PLUGIN_LIBRARY}"),
]


@pytest.fixture(autouse=True)
def _built() -> None:
    """Nothing emulated is needed here."""


README = Path(__file__).parents[2] / "plugins" / "README.md"
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
X: Shapes = {"x": ((1, 1, WIDTH), (2, 59, WIDTH), (3, 97, WIDTH))}


def save_packed(path: Path, case: AttentionCase, outputs: tuple[str, ...]) -> Path:
    """One attention as a fused file that TensorRT can read."""
    path.write_bytes(attention_model(case.spec, case.inputs, outputs).SerializeToString())
    save_model(to_form(ir.load(path), "fused", runtime="tensorrt"), path)
    return path


def packed_model(folder: Path, **attributes: object) -> Path:
    """x -> projection -> attention -> y, for TensorRT."""
    path = save_fused(folder / "model.onnx", spec_with(**attributes))
    save_model(to_form(ir.load(path), "fused", runtime="tensorrt"), path)
    return path


def expected(model: Path, x: torch.Tensor) -> torch.Tensor:
    portable = model.with_name("portable.onnx")
    save_model(to_form(ir.load(model), "portable"), portable)
    with open_runner(portable, "ort-stock") as runner:
        return runner.run({"x": x})["y"]


def test_the_parser_makes_a_plugin_layer_of_each_attention(tmp_path: Path) -> None:
    _, network = parse(packed_model(tmp_path))
    assert count_plugins(network) == 1


def test_the_engine_echoes_every_attribute(tmp_path: Path) -> None:
    attributes = {"causal": "lower_right", "softcap": 2.5, "window_left": 7, "qk_norm": "layer"}
    with Engine(build(packed_model(tmp_path, **attributes), [X])) as engine:
        (text,) = [
            str(layer) for layer in layers_of(engine.engine) if "qk_norm_epsilon" in str(layer)
        ]
    for name, value in spec_with(**attributes).to_attributes().items():
        shown = f"{value:.9g}" if isinstance(value, float) else str(value)
        assert name in ("input_roles", "output_roles") or f"{name}={shown}" in text


@pytest.mark.parametrize("grid", pairwise_cases(), ids=lambda grid: grid.label)
def test_an_engine_computes_the_reference(grid: GridCase, tmp_path: Path) -> None:
    outputs = ALL_OUTPUTS if grid.presents else ALL_OUTPUTS[:1]
    case = grid.case
    exact = reference_attention(case.spec, case.inputs, outputs=outputs)
    with Engine(build(save_packed(tmp_path / "m.onnx", case, outputs))) as engine:
        got = engine.run(case.inputs)
    limit = TOLERANCES[case.inputs["query"].dtype]
    for name in outputs:
        torch.testing.assert_close(got[name].double(), exact[name], rtol=limit, atol=limit)


def test_contexts_of_two_profiles_interleave(tmp_path: Path) -> None:
    model = packed_model(tmp_path, causal="upper_left")
    decode: Shapes = {"x": ((1, 1, WIDTH),) * 3}
    prefill: Shapes = {"x": ((1, 8, WIDTH), (1, 33, WIDTH), (2, 97, WIDTH))}
    token, prompt = torch.randn(1, 1, WIDTH).half(), torch.randn(2, 59, WIDTH).half()
    with Engine(build(model, [decode, prefill])) as engine:
        for _ in range(3):
            for profile, x in enumerate((token, prompt)):
                y = engine.run({"x": x}, profile=profile)["y"]
                torch.testing.assert_close(y, expected(model, x), rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("aliased", [False, True])
def test_a_static_cache_with_and_without_shared_memory(aliased: bool, tmp_path: Path) -> None:
    spec = AttentionSpec(
        num_heads=4,
        num_kv_heads=2,
        scale=0.25,
        causal=Causal.LOWER_RIGHT,
        kv_cache=KvCache.STATIC,
    )
    widths = {"query": 256, "key": 128, "value": 128}
    inputs = {name: torch.randn(2, 3, width).half() for name, width in widths.items()}
    for name in ("past_key", "past_value"):
        inputs[name] = torch.randn(2, 2, 20, 64).half()
    inputs["kv_lengths"] = torch.tensor([20, 9])
    exact = reference_attention(spec, inputs, outputs=ALL_OUTPUTS)
    model = save_packed(tmp_path / "m.onnx", AttentionCase(spec, inputs), ALL_OUTPUTS)
    shared = {"present_key": "past_key", "present_value": "past_value"} if aliased else {}
    with Engine(build(model, aliased=aliased)) as engine:
        got = engine.run(inputs, shared=shared)
    for name in ALL_OUTPUTS:
        torch.testing.assert_close(got[name].double(), exact[name], rtol=4e-3, atol=4e-3)


def test_weights_of_the_plugin_are_refitted(tmp_path: Path) -> None:
    model = packed_model(tmp_path)
    x = torch.randn(2, 59, WIDTH).half()
    graph = ir.load(model)
    gains = graph.graph.initializers["gain"]
    assert gains.const_value is not None
    changed = (np.asarray(gains.const_value.numpy()) * 3).astype(np.float16)
    with Engine(build(model, [X], flags=[trt.BuilderFlag.REFIT])) as engine:
        before = engine.run({"x": x})["y"]
        engine.refit({"gain": torch.from_numpy(changed)})
        after = engine.run({"x": x})["y"]
    gains.const_value = ir.tensor(changed, name="gain")
    refitted = tmp_path / "refitted.onnx"
    save_model(graph, refitted)
    assert (after - before).abs().max() > 1e-2
    torch.testing.assert_close(after, expected(refitted, x), rtol=1e-2, atol=2e-3)


LEAN_PROGRAM = """
import sys
import tensorrt_lean as trt
logger = trt.Logger(trt.Logger.ERROR)
runtime = trt.Runtime(logger)
runtime.get_plugin_registry().load_library(sys.argv[1])
engine = runtime.deserialize_cuda_engine(open(sys.argv[2], "rb").read())
assert engine is not None
assert engine.create_execution_context() is not None
print(engine.num_io_tensors)
"""


def test_the_lean_runtime_loads_a_version_compatible_engine(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorrt_lean") is None:
        pytest.skip("the lean runtime is not installed: pip install tensorrt-lean")
    flags = [trt.BuilderFlag.VERSION_COMPATIBLE, trt.BuilderFlag.EXCLUDE_LEAN_RUNTIME]
    engine = tmp_path / "model.engine"
    engine.write_bytes(build(packed_model(tmp_path), [X], flags=flags))
    done = subprocess.run(
        [sys.executable, "-c", LEAN_PROGRAM, str(find_plugin_library()), str(engine)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2"


def trtexec_lines() -> list[str]:
    """The trtexec commands of plugins/README.md, continued lines joined."""
    text = README.read_text().replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line.strip()) for line in text.splitlines() if "trtexec --" in line]


def test_the_trtexec_commands_of_the_readme_work(tmp_path: Path) -> None:
    if shutil.which("trtexec") is None:
        pytest.skip("trtexec is not on the path")
    packed_model(tmp_path)
    shutil.copy(find_plugin_library(), tmp_path)
    lines = trtexec_lines()
    assert len(lines) == 2
    for line in lines:
        done = subprocess.run(line.split(), capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
