"""Every causal LM of the zoo with both kinds of cache, in other types and by other attentions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from cached_models import tiny
from zoo.family import Family
from zoo.language import FAMILIES

import qkexport
from qkexport.errors import UnsupportedModelError

_OTHER_STATES = {
    "qwen3 next": "got layers of linear_attention",
    "deepseek v3.2": "must run with a cache, got ValueError: Cannot call `update_indexer`",
}
# Rows whose point is how they are traced.
_LEFT_OUT = {"qwen3 float16", "qwen3 without mask", "qwen3 static", *_OTHER_STATES}
_ROWS = [family for family in FAMILIES if family.name not in _LEFT_OUT]


def _model(family: Family) -> Any:
    build: Any = family.build
    options = {
        name: value for name, value in build.keywords.items() if name not in ("masked", "dynamic")
    }
    return build.func(*build.args, "sdpa", **options).module


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["concat", "static"])
@pytest.mark.parametrize("family", _ROWS, ids=lambda family: family.name)
def test_a_family_fuses_with_its_cache_as_it_does_without(
    family: Family, kind: str, tmp_path: Path
) -> None:
    result = qkexport.convert(_model(family), tmp_path / "m.onnx", kv_cache=kind)
    assert result, result.to_dict()
    assert result.fused == family.fused
    for record in result.attentions:
        if record.spec is not None:
            assert record.spec.kv_cache == kind
            assert record.spec.causal == {"concat": "upper_left", "static": "lower_right"}[kind]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "dtype", "implementation"),
    [
        ("concat", "float16", "sdpa"),
        ("concat", "bfloat16", "sdpa"),
        ("static", "float16", "sdpa"),
        ("static", "bfloat16", "eager"),
        ("concat", "float32", "eager"),
        ("static", "float32", "eager"),
    ],
)
def test_types_and_attention_implementations_make_no_difference(
    kind: str, dtype: str, implementation: str, tmp_path: Path
) -> None:
    model = tiny("qwen3", implementation, num_hidden_layers=1)
    path = tmp_path / "m.onnx"
    result = qkexport.convert(model, path, kv_cache=kind, dtype=dtype, require_fused="all")
    assert result, result.to_dict()


@pytest.mark.parametrize("name", _OTHER_STATES)
def test_a_model_with_other_states_is_refused(name: str, tmp_path: Path) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    torch.manual_seed(0)
    with pytest.raises(UnsupportedModelError, match=_OTHER_STATES[name]):
        qkexport.convert(_model(family), tmp_path / "m.onnx", kv_cache="concat")
