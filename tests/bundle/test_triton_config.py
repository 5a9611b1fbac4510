"""config.pbtxt, read by the schema that Triton's own client brings."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from served_models import PROFILE, X, Y, served
from tensorrt_stubs import unpack_wheel

from qkexport.bundle.triton import config_text, plan_names
from qkexport.errors import UsageError
from qkexport.manifest import TensorRecord


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = unpack_wheel("tritonclient==2.73.0", tmp_path_factory.mktemp("triton"))
    path = folder / "tritonclient" / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parse(schema: Any, text: str) -> Any:
    from google.protobuf import text_format

    return text_format.Parse(text, schema.ModelConfig())


def test_an_engine_of_tensorrt_is_served_by_its_backend(schema: Any) -> None:
    config = _parse(schema, config_text(served()))
    assert (config.name, config.platform) == ("m", "tensorrt_plan")
    assert config.max_batch_size == 8
    (x,) = config.input
    assert (x.name, x.data_type, list(x.dims)) == ("x", schema.TYPE_FP16, [-1, 32])
    assert [list(y.dims) for y in config.output] == [[-1, 32]]
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    assert list(config.instance_group[0].profile) == ["0"]


def test_the_gpu_chooses_among_engines_of_several_targets(schema: Any) -> None:
    model = served(("sm_89",), ("sm_90", "sm_120"))
    config = _parse(schema, config_text(model))
    assert dict(config.cc_model_filenames) == {
        "8.9": "sm_89.plan",
        "9.0": "sm_90_sm_120.plan",
        "12.0": "sm_90_sm_120.plan",
    }
    assert set(plan_names(model).values()) == set(config.cc_model_filenames.values())


def test_one_engine_has_tritons_default_name() -> None:
    assert list(plan_names(served()).values()) == ["model.plan"]


def test_two_engines_for_one_target_are_refused() -> None:
    model = served()
    (engine,) = model.engines
    twice = type(model)("m", {**model.engines, engine.with_name("b"): model.manifest})
    with pytest.raises(UsageError, match=r"different targets, got sm_89\.plan"):
        plan_names(twice)


def test_an_engine_of_rtx_is_served_by_the_python_backend(schema: Any) -> None:
    config = _parse(schema, config_text(served(runtime="tensorrt-rtx")))
    assert (config.backend, config.platform) == ("python", "")
    assert not config.cc_model_filenames
    assert not config.instance_group[0].profile


STATIC = TensorRecord("y", "float16", (4, 59, 32))
TABLE = TensorRecord("table", "float32", (59, 2))
SCALAR = TensorRecord("length", "int64", ())


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": (STATIC,)},
        {"inputs": (X, TABLE)},
        {"inputs": (X, SCALAR)},
        {"profiles": ()},
        {
            "inputs": (X, TensorRecord("z", "float16", (-1, 2))),
            "profiles": ({**PROFILE, "z": ((1, 2), (1, 2), (4, 2))},),
        },
    ],
)
def test_what_has_no_batch_of_its_own_is_not_gathered(schema: Any, changes: Any) -> None:
    config = _parse(schema, config_text(served(**changes)))
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert list(config.input[0].dims) == [-1, -1, 32]


def test_a_scalar_is_one_element_that_is_reshaped_away(schema: Any) -> None:
    config = _parse(schema, config_text(served(inputs=(X, SCALAR))))
    assert list(config.input[1].dims) == [1]
    assert config.input[1].HasField("reshape")
    assert list(config.input[1].reshape.shape) == []


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float32", "TYPE_FP32"),
        ("bfloat16", "TYPE_BF16"),
        ("int64", "TYPE_INT64"),
        ("bool", "TYPE_BOOL"),
    ],
)
def test_types_have_tritons_names(schema: Any, dtype: str, name: str) -> None:
    config = _parse(schema, config_text(served(inputs=(TensorRecord("x", dtype, X.shape),))))
    assert config.input[0].data_type == getattr(schema, name)


def test_a_type_that_triton_does_not_serve_is_refused() -> None:
    with pytest.raises(UsageError, match="type that Triton serves, got fp8"):
        config_text(served(outputs=(TensorRecord("y", "fp8", Y.shape),)))


def test_several_profiles_are_all_used(schema: Any) -> None:
    config = _parse(schema, config_text(served(profiles=(PROFILE, PROFILE))))
    assert list(config.instance_group[0].profile) == ["0", "1"]


def test_a_preferred_batch_of_one_is_not_worth_saying(schema: Any) -> None:
    profile = {"x": ((1, 1, 32), (1, 59, 32), (8, 97, 32))}
    config = _parse(schema, config_text(served(profiles=(profile,))))
    assert not config.dynamic_batching.preferred_batch_size
    assert config.dynamic_batching.max_queue_delay_microseconds > 0


def test_paths_of_the_repository_are_relative(tmp_path: Path) -> None:
    assert str(tmp_path) not in config_text(served())
