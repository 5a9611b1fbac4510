"""What the full TensorRT is told, and what the manifest says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_models import WIDTH, save_fused
from fake_tensorrt import FakeTensorRt, Flags, library, plugin_layer

import qkexport
from qkexport import BuildOptions, BuildResult
from qkexport.engine import choose, layers, plan, plugin_library, timing_cache
from qkexport.engine.device import Gpu
from qkexport.engine.options import parse_shapes
from qkexport.engine.timing_cache import read_timings
from qkexport.engine.verify import verify_files
from qkexport.files import sha256_of

GPU = Gpu("a fake GPU", "sm_90")
SHAPES = parse_shapes(["x=1x1x32,2x59x32,3x97x32"])


class Machine:
    """A machine with a GPU, the full TensorRT and the plugin library."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trt = FakeTensorRt()
        self.trt.layers = [plugin_layer("attention")]
        self.model = save_fused(folder / "m.onnx")
        self.output = folder / "m.engine"
        self.plugin = library(folder)
        for module in (choose, plan, layers, timing_cache):
            monkeypatch.setattr(module, "find_gpu", lambda: GPU)
        monkeypatch.setattr(choose, "is_installed", lambda flavour: True)
        monkeypatch.setattr(plan, "load_bindings", lambda flavour: self.trt)
        monkeypatch.setattr(plugin_library, "find_library", lambda name: self.plugin)

    def build(self, attention: str = "plugin", options: BuildOptions | None = None) -> BuildResult:
        options = options or BuildOptions(profiles=SHAPES)
        return qkexport.build(self.model, self.output, attention=attention, options=options)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_plugin_is_loaded_and_given_packed_inputs_without_function_bodies(
    machine: Machine,
) -> None:
    result = machine.build()
    assert result
    assert machine.trt.loaded == [str(machine.plugin)]
    parsed = machine.trt.parsed
    assert parsed is not None
    assert not parsed.functions
    (node,) = [node for node in parsed.graph.node if node.op_type == "QKNormAttention"]
    attributes = {attribute.name: attribute.s.decode() for attribute in node.attribute}
    assert attributes["input_roles"] == "query,key,value,q_norm_weight,k_norm_weight"
    assert all(node.input)
    manifest = verify_files(machine.output)
    assert manifest == result.manifest
    assert (manifest.runtime, manifest.attention) == ("tensorrt", "plugin")
    assert manifest.plugin is not None
    assert manifest.plugin.path == str(machine.plugin)
    assert manifest.plugin.sha256 == sha256_of(machine.plugin)
    assert manifest.targets == ("sm_90",)


def test_native_attention_needs_no_plugin(machine: Machine) -> None:
    machine.trt.layers = []
    result = machine.build("native")
    assert result
    assert machine.trt.loaded == []
    assert machine.trt.parsed is not None
    assert "QKNormAttention" not in {node.op_type for node in machine.trt.parsed.graph.node}
    assert result.manifest.plugin is None


def test_an_engine_that_lost_its_plugin_layer_is_not_written(machine: Machine) -> None:
    machine.output.write_bytes(b"older")
    machine.trt.layers = []
    result = machine.build()
    assert not result
    assert result.output is None
    assert machine.output.read_bytes() == b"older"
    (check,) = [check for check in result.checks if check.name == "inspector"]
    assert check.detail == "0 of 1 plugin layers are in the engine"


def test_every_option_reaches_the_builder(machine: Machine) -> None:
    machine.build(
        options=BuildOptions(
            profiles=SHAPES,
            workspace=1 << 30,
            opt_level=5,
            refit=True,
            strip_weights=True,
            version_compatible=True,
        )
    )
    config = machine.trt.config
    assert config is not None
    assert config.limits == {"WORKSPACE": 1 << 30}
    assert config.builder_optimization_level == 5
    assert config.flags == [Flags.REFIT, Flags.STRIP_PLAN, Flags.VERSION_COMPATIBLE]
    assert config.profiles == [{"x": ((1, 1, WIDTH), (2, 59, WIDTH), (3, 97, WIDTH))}]


def test_stripped_engines_take_back_their_own_weights_alone(machine: Machine) -> None:
    machine.build(options=BuildOptions(profiles=SHAPES, strip_weights=True))
    assert machine.trt.config is not None
    assert machine.trt.config.flags == [Flags.STRIP_PLAN, Flags.REFIT_IDENTICAL]


def test_timings_are_kept_from_build_to_build(machine: Machine, tmp_path: Path) -> None:
    options = BuildOptions(profiles=SHAPES, timing_cache=tmp_path / "timings")
    machine.trt.timings = b"first,"
    machine.build(options=options)
    machine.trt.timings = b"second"
    machine.build(options=options)
    assert machine.trt.config is not None
    assert machine.trt.config.given_timings == b"first,"
    key = {"tensorrt": machine.trt.__version__, "gpu": GPU.name}
    assert read_timings(tmp_path / "timings", key) == b"first,second"


def test_timings_of_another_version_are_thrown_away(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = BuildOptions(profiles=SHAPES, timing_cache=tmp_path / "timings")
    machine.trt.timings = b"old"
    machine.build(options=options)
    machine.trt.__version__ = "11.5.0.1"
    machine.build(options=options)
    assert machine.trt.config is not None
    assert machine.trt.config.given_timings == b""
    assert "starting a new one" in caplog.text
