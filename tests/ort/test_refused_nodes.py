"""Nodes that break the contract are refused when the session is made, with the reason."""

from __future__ import annotations

import contextlib

import onnx
import onnxruntime as ort
import pytest
import torch
from attention_cases import AttentionCase, attention_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,
    RuntimeException,
)

from ort.attention_session import attention_model, open_session, run_session
from qkexport.spec import AttentionSpec

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.5)
INPUTS = {
    "query": torch.zeros(2, 3, 32),
    "key": torch.zeros(2, 3, 16),
    "value": torch.zeros(2, 3, 16),
}


def refusal(**changes: object) -> str:
    """The message for a node with some attributes changed, or left out where None."""
    model = attention_model(SPEC, INPUTS, attributes=changes)
    with pytest.raises(Exception, match="QKNormAttention") as caught:
        open_session(model)
    return str(caught.value)


def refused_inputs(**changes: torch.Tensor) -> str:
    model = attention_model(SPEC, INPUTS | changes)
    with pytest.raises(Exception, match="QKNormAttention") as caught:
        open_session(model)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("num_heads", 0, "must be at least 1, got 0"),
        ("num_kv_heads", 3, "num_heads must be a multiple of num_kv_heads, got 4 and 3"),
        ("qk_norm", "batch", "accepted: 'rms', 'layer', 'l2'"),
        ("norm_axis", "token", "accepted: 'head', 'hidden'"),
        ("norm_rounding", "", "accepted: 'after_weight', 'before_weight'"),
        ("rotary", "during", "accepted: 'none', 'after_norm', 'before_norm'"),
        ("causal", "true", "accepted: 'none', 'upper_left', 'lower_right'"),
        ("kv_cache", "paged", "accepted: 'concat', 'static'"),
        ("rotary_dim", 3, "rotary_dim must be even, got 3"),
        ("window_left", -2, "must be at least -1, got -2"),
        ("normalize_key", 2, "must be 0 or 1, got 2"),
        ("scale", float("inf"), "must be finite"),
        ("softcap", -1.0, "must not be negative"),
        ("scale", None, "needs every attribute written out, got none for scale"),
        ("causal", None, "needs every attribute written out, got none for causal"),
        ("input_roles", "query,key", "must name as many inputs as the node has, got 2 for 3"),
        ("input_roles", "query,key,values", "must name inputs of the operator, got 'values'"),
        ("output_roles", "present_key", "output_roles must be '' or 'output'"),
        ("plugin_version", "2", "must be '1', got '2'"),
    ],
)
def test_a_wrong_attribute_is_refused(name: str, value: object, text: str) -> None:
    message = refusal(**{name: value})
    assert text in message


def test_a_refusal_names_the_node_when_a_kernel_is_made() -> None:
    assert "Node 'attention'" in refused_inputs(attn_mask=torch.zeros(5, 3))


@pytest.mark.parametrize(
    ("name", "tensor", "text"),
    [
        ("attn_mask", torch.zeros(5, 3), "attn_mask must broadcast to [2,4,3,3]"),
        ("attn_mask", torch.zeros(3, 3, dtype=torch.int64), "must be bool or float32, got int64"),
        ("q_norm_weight", torch.zeros(7), "q_norm_weight must be [8] or [4,8], got float32[7]"),
        ("head_scale", torch.zeros(4, dtype=torch.float16), "head_scale must be float32"),
        ("past_key", torch.zeros(2, 2, 1, 8), "needs both of past_key and past_value"),
        ("position_ids", torch.zeros(2, 3, dtype=torch.int64), "only with rotary"),
        ("kv_lengths", torch.zeros(3, dtype=torch.int64), "kv_lengths must be [2]"),
    ],
)
def test_a_wrong_input_is_refused(name: str, tensor: torch.Tensor, text: str) -> None:
    assert text in refused_inputs(**{name: tensor})


def test_a_shape_that_is_wrong_only_at_run_time_is_an_error_of_the_run() -> None:
    session = open_session(attention_model(SPEC, INPUTS, dynamic=True))
    wrong = INPUTS | {"value": torch.zeros(2, 4, 16)}
    with pytest.raises(Exception, match="key and value must be equally long"):
        run_session(session, wrong)


@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_outside_the_cache_is_an_error_of_the_run(position: int) -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.5, rotary="after_norm")  # type: ignore[arg-type]
    inputs = INPUTS | {
        "cos_cache": torch.ones(4, 4),
        "sin_cache": torch.ones(4, 4),
        "position_ids": torch.tensor([[0, 1, position]]),
    }
    session = open_session(attention_model(spec, inputs))
    with pytest.raises(Exception, match=r"position_ids must lie in \[0, 4\)"):
        run_session(session, inputs)


def test_an_unknown_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKEXPORT_CPU_ISA", "mmx")
    with pytest.raises(Exception, match=r"got 'mmx'.\s*Note: available: portable"):
        open_session(attention_model(SPEC, INPUTS))


# What ONNX Runtime raises for a model or a run that it refuses.
REFUSALS = (Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException)


def _opened(model: onnx.ModelProto) -> ort.InferenceSession | None:
    """A session, or None where the node is refused with a reason."""
    with contextlib.suppress(*REFUSALS):
        return open_session(model)
    return None


_SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32),
    st.text(max_size=40).filter(lambda s: "\0" not in s),
    st.none(),
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted(SPEC.to_attributes())),
    value=_SCALARS,
)
def test_any_attribute_value_is_run_or_refused(name: str, value: object) -> None:
    model = attention_model(SPEC, INPUTS, attributes={name: value})
    session = _opened(model)
    if session is None:
        return
    assert run_session(session, INPUTS)["output"].shape == (2, 3, 32)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=attention_cases(), data=st.data())
def test_any_change_of_a_shape_is_run_or_refused(case: AttentionCase, data: st.DataObject) -> None:
    session = open_session(attention_model(case.spec, case.inputs, dynamic=True))
    name = data.draw(st.sampled_from(sorted(case.inputs)))
    shape = list(case.inputs[name].shape)
    if not shape:
        return
    shape[data.draw(st.integers(0, len(shape) - 1))] = data.draw(st.integers(0, 6))
    changed = case.inputs | {name: torch.zeros(shape, dtype=case.inputs[name].dtype)}
    with contextlib.suppress(*REFUSALS):
        assert run_session(session, changed)["output"].dim() == len(session.get_outputs()[0].shape)


def test_ranks_other_than_declared_are_refused() -> None:
    model = attention_model(SPEC, INPUTS, dynamic=True)
    session = open_session(model)
    with pytest.raises(Exception, match=r"Invalid rank|share rank"):
        run_session(session, INPUTS | {"key": torch.zeros(2, 2, 3, 8)})
    assert isinstance(session, ort.InferenceSession)
