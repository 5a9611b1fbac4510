"""The attributes: one validated value, and the same value after a trip through a node."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkexport.errors import InvalidSpecError
from qkexport.spec import (
    SPELLING_ATTRIBUTES,
    AttentionSpec,
    Causal,
    KvCache,
    NormAxis,
    NormRounding,
    QkNorm,
    Rotary,
)

INT32_MAX = 2**31 - 1


def _spec(**changes: Any) -> AttentionSpec:
    return AttentionSpec(**{"num_heads": 4, "num_kv_heads": 2, "scale": 0.5, **changes})


def _specs() -> st.SearchStrategy[AttentionSpec]:
    float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
    window = st.integers(-1, INT32_MAX)
    return st.builds(
        lambda group_size, num_kv_heads, half_rotary_dim, **fields: AttentionSpec(
            num_heads=group_size * num_kv_heads,
            num_kv_heads=num_kv_heads,
            rotary_dim=2 * half_rotary_dim,
            **fields,
        ),
        group_size=st.integers(1, 64),
        num_kv_heads=st.integers(1, 128),
        half_rotary_dim=st.integers(0, 256),
        scale=float32,
        qk_norm=st.sampled_from(QkNorm),
        norm_axis=st.sampled_from(NormAxis),
        qk_norm_epsilon=float32.map(abs),
        norm_rounding=st.sampled_from(NormRounding),
        normalize_key=st.booleans(),
        rotary=st.sampled_from(Rotary),
        rotary_interleaved=st.booleans(),
        causal=st.sampled_from(Causal),
        window_left=window,
        window_right=window,
        softcap=float32.map(abs),
        kv_cache=st.sampled_from(KvCache),
    )


@given(_specs())
def test_a_spec_survives_the_trip_through_attributes(spec: AttentionSpec) -> None:
    assert AttentionSpec.from_attributes(spec.to_attributes()) == spec


@given(_specs())
def test_attributes_are_integers_floats_and_strings_only(spec: AttentionSpec) -> None:
    assert {type(value) for value in spec.to_attributes().values()} == {int, float, str}


@given(_specs())
def test_every_field_is_written_out_next_to_the_spelling(spec: AttentionSpec) -> None:
    fields = {field.name for field in dataclasses.fields(AttentionSpec)}
    assert set(spec.to_attributes()) == fields | set(SPELLING_ATTRIBUTES)


def test_roles_are_written_as_given_and_do_not_change_the_spec() -> None:
    attributes = _spec().to_attributes(input_roles="query,key,value", output_roles="output")
    assert attributes["input_roles"] == "query,key,value"
    assert attributes["output_roles"] == "output"
    assert AttentionSpec.from_attributes(attributes) == _spec()


def test_spelling_attributes_may_be_absent() -> None:
    attributes = _spec().to_attributes()
    bare = {name: v for name, v in attributes.items() if name not in SPELLING_ATTRIBUTES}
    assert AttentionSpec.from_attributes(bare) == _spec()


def test_floats_are_those_that_a_node_can_hold() -> None:
    spec = _spec(scale=0.1, qk_norm_epsilon=1e-6, softcap=30.1)
    for value in (spec.scale, spec.qk_norm_epsilon, spec.softcap):
        assert struct.unpack("<f", struct.pack("<f", value))[0] == value
    assert spec.scale != 0.1


def test_integers_are_accepted_where_floats_are_meant() -> None:
    spec = _spec(scale=1)
    assert type(spec.scale) is float


def test_group_size_counts_query_heads_of_one_key_head() -> None:
    assert _spec(num_heads=12, num_kv_heads=3).group_size == 4


def test_a_spec_is_a_value() -> None:
    assert hash(_spec(causal="upper_left")) == hash(_spec(causal=Causal.UPPER_LEFT))
    with pytest.raises(dataclasses.FrozenInstanceError):
        _spec().scale = 1.0  # type: ignore[misc]


REFUSED = {
    "no heads": ({"num_heads": 0}, "num_heads must be at least 1, got 0."),
    "no key heads": ({"num_kv_heads": 0}, "num_kv_heads must be at least 1, got 0."),
    "uneven groups": (
        {"num_heads": 5},
        "num_heads must be a multiple of num_kv_heads, got 5 and 2.",
    ),
    "more key heads than heads": (
        {"num_kv_heads": 8},
        "num_heads must be a multiple of num_kv_heads, got 4 and 8.",
    ),
    "odd rotary dim": ({"rotary_dim": 3}, "rotary_dim must be even and not negative, got 3."),
    "negative rotary dim": (
        {"rotary_dim": -2},
        "rotary_dim must be even and not negative, got -2.",
    ),
    "left window": ({"window_left": -2}, "window_left must be -1 (unlimited) or more, got -2."),
    "right window": ({"window_right": -2}, "window_right must be -1 (unlimited) or more, got -2."),
    "negative epsilon": (
        {"qk_norm_epsilon": -1.0},
        "qk_norm_epsilon must not be negative, got -1.0.",
    ),
    "negative softcap": ({"softcap": -1.0}, "softcap must not be negative, got -1.0."),
    "unknown norm": ({"qk_norm": "batch"}, "qk_norm is not a known value, got 'batch'."),
    "unknown axis": ({"norm_axis": "token"}, "norm_axis is not a known value, got 'token'."),
    "unknown rounding": ({"norm_rounding": ""}, "norm_rounding is not a known value, got ''."),
    "unknown rotary": ({"rotary": "yes"}, "rotary is not a known value, got 'yes'."),
    "causal as a bool": ({"causal": True}, "causal is not a known value, got True."),
    "unknown cache": ({"kv_cache": "paged"}, "kv_cache is not a known value, got 'paged'."),
    "float heads": ({"num_heads": 4.0}, "num_heads must be an integer, got 4.0."),
    "bool heads": ({"num_heads": True}, "num_heads must be an integer, got True."),
    "wide integer": ({"window_left": 2**31}, f"window_left must fit in 32 bits, got {2**31}."),
    "flag of two": ({"normalize_key": 2}, "normalize_key must be 0 or 1, got 2."),
    "flag as text": ({"rotary_interleaved": "1"}, "rotary_interleaved must be 0 or 1, got '1'."),
    "scale as text": ({"scale": "1"}, "scale must be a number, got '1'."),
    "scale as bool": ({"scale": True}, "scale must be a number, got True."),
    "infinite scale": ({"scale": float("inf")}, "scale must be finite, got inf."),
    "NaN epsilon": ({"qk_norm_epsilon": float("nan")}, "qk_norm_epsilon must be finite, got nan."),
    "scale over float32": ({"scale": 1e39}, "scale must fit in float32, got 1e+39."),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_a_value_outside_the_contract_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        _spec(**changes)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("QKNormAttention ")


def test_an_unknown_value_comes_with_the_known_ones() -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        _spec(causal="lower")
    assert refusal.value.note == "accepted: 'none', 'upper_left', 'lower_right'."


def test_a_misspelled_attribute_comes_with_the_likely_name() -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        AttentionSpec.from_attributes({**_spec().to_attributes(), "soft_cap": 1.0})
    assert "no attribute of that name, got 'soft_cap'." in str(refusal.value)
    assert refusal.value.hint == "did you mean 'softcap'?"


def test_an_attribute_like_no_other_comes_without_a_guess() -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        AttentionSpec.from_attributes({**_spec().to_attributes(), "zzz": 1.0})
    assert refusal.value.hint is None


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(AttentionSpec)])
def test_no_attribute_has_an_implied_value(name: str) -> None:
    attributes = _spec().to_attributes()
    del attributes[name]
    with pytest.raises(InvalidSpecError) as refusal:
        AttentionSpec.from_attributes(attributes)
    assert f"needs every attribute written out, got none for ['{name}']." in str(refusal.value)


@pytest.mark.parametrize(("name", "value"), [("plugin_version", "2"), ("plugin_namespace", "x")])
def test_another_version_or_namespace_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        AttentionSpec.from_attributes({**_spec().to_attributes(), name: value})
    assert f"{name} must be {SPELLING_ATTRIBUTES[name]!r}, got '{value}'." in str(refusal.value)
