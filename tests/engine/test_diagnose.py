"""TensorRT's words, and the move that they call for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from qkexport.engine.bindings import Bindings
from qkexport.engine.diagnose import build_error
from qkexport.engine.logger import Messages
from qkexport.engine.network import refuse_dropped
from qkexport.engine.plugin_lookup import plugin_error
from qkexport.errors import BuildError


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (
            "Error Code 9: could not find any supported formats consistent with the types of y",
            "one type of float32, float16 or bfloat16",
        ),
        ("Attention operation was not supported by a dedicated kernel.", "--form native"),
        ("no tactics to implement the operation within workspace limit", "larger --workspace"),
        ("graph_jit.cpp:278: CHECK(status == CUDA_SUCCESS) failed.", "with an NVIDIA driver"),
        ("Unable to load library: libnvinfer_lean.so.10", "lean runtime"),
        ("Failed to open file: weights.bin", "copy the data file"),
        (
            "Optimization profile 0 is missing values for shape input tensor t.",
            "--shape NAME=MIN,OPT,MAX with the values",
        ),
        ("std::bad_alloc", "more memory"),
        ("Cannot compile operation 'm' for Turing (SM75): FP32 GEMM", "--dtype float16"),
        ("x: for dimension number 1 in profile 0 does not match", "--shape NAME=MIN,OPT,MAX"),
        ("an error that nobody knows", "-vv shows TensorRT's log"),
    ],
)
def test_an_error_comes_with_what_to_do(said: str, advice: str) -> None:
    error = build_error("m.onnx", "must be built by tensorrt-rtx", [said])
    assert str(error).startswith("Model m.onnx must be built by tensorrt-rtx, got ")
    assert advice in str(error)


def test_a_failure_without_a_word_is_still_an_error() -> None:
    assert "no engine and no message" in str(build_error("m.onnx", "must be built", []))


def test_a_long_message_is_cut_where_the_summary_ends() -> None:
    assert len(build_error("m.onnx", "must be built", ["x" * 5000]).message) < 500


def test_the_location_in_nvidias_sources_is_left_out() -> None:
    said = "[api.cpp::f::12] Error Code 4: API Usage Error (bad) In g at /_src/x.cpp:305)"
    message = build_error("m.onnx", "must be built", [said]).message
    assert "/_src" not in message
    assert "[api.cpp" not in message


@pytest.mark.parametrize(
    ("warning", "named"),
    [
        ("Unused Input: kv_lengths", "kv_lengths"),
        ('TensorRT currently ignores the "seed" field in RandomUniform op.', "seed"),
        ("The attribute foo is being ignored", "foo"),
    ],
)
def test_warnings_of_dropped_parts_fail(warning: str, named: str) -> None:
    with pytest.raises(BuildError, match="no part that TensorRT drops") as caught:
        refuse_dropped("m.onnx", Messages(warnings=["all is well", warning]))
    assert named in caught.value.message


def test_other_warnings_do_not_fail() -> None:
    refuse_dropped("m.onnx", Messages(warnings=["Make sure input ids has Int64 binding."]))


def _parser_error(operator: str, text: str) -> Any:
    return SimpleNamespace(
        desc=lambda: text, node_operator=lambda: operator, node_name=lambda: "attention"
    )


def _registry(*creators: tuple[str, str, str]) -> Bindings:
    known = [
        SimpleNamespace(name=name, plugin_version=version, plugin_namespace=namespace)
        for name, version, namespace in creators
    ]
    registry = SimpleNamespace(all_creators=known)
    return cast(Bindings, SimpleNamespace(get_plugin_registry=lambda: registry))


NOT_FOUND = "Plugin not found, are the plugin name, version, and namespace correct?"


@pytest.mark.parametrize(
    ("operator", "creators", "cause"),
    [
        ("QKNormAttention", [], "no library with that plugin is loaded"),
        ("QKNormAttention", [("Other", "1", "")], "no library with that plugin is loaded"),
        ("QKNormAttention", [("QKNormAttention", "2", "")], "version 2 in namespace ''"),
        ("QKNormAttention", [("QKNormAttention", "1", "ns")], "version 1 in namespace 'ns'"),
        ("SomethingElse", [("QKNormAttention", "1", "")], "TensorRT knows no operator"),
    ],
)
def test_the_causes_of_plugin_not_found_are_told_apart(
    operator: str, creators: list[tuple[str, str, str]], cause: str
) -> None:
    error = plugin_error(_registry(*creators), _parser_error(operator, NOT_FOUND))
    assert error is not None
    assert f"got {operator}" in error.message
    assert cause in str(error)


def test_another_parser_error_is_not_about_plugins() -> None:
    assert plugin_error(_registry(), _parser_error("Conv", "bad weights")) is None
