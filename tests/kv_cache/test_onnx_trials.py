"""ONNX models that keep the contract are tried as they are served; others by drawn inputs."""

from __future__ import annotations

import dataclasses

import pytest

from qkexport.domain import InputDomain, ModelDomain
from qkexport.kv_cache.contract import CacheLayer, tensor_names
from qkexport.kv_cache.onnx_trials import trials_of_domain
from qkexport.spec import KvCache

_LAYERS = [CacheLayer(0, 2, 16, 8), CacheLayer(1, 3, 4, 4)]


def _domain(kind: KvCache) -> ModelDomain:
    own = {"kv_lengths": ("batch",), "attention_mask": ("batch", "past + new")}
    pasts = {
        f"past_key_values.{i}.{half}": ("batch", layer.num_kv_heads, "past", channels)
        for i, layer in enumerate(_LAYERS)
        for half, channels in (("key", layer.head_dim), ("value", layer.head_dim_v))
    }
    inputs = tuple(
        InputDomain(
            name,
            "float16" if name in pasts else "int64",
            pasts.get(name) or own.get(name) or ("batch", "new"),
        )
        for name in tensor_names(kind, _LAYERS).inputs
    )
    return ModelDomain(inputs, {})


@pytest.mark.parametrize("kind", list(KvCache))
def test_shapes_and_types_are_those_of_the_model(kind: KvCache) -> None:
    domain = _domain(kind)
    trials = trials_of_domain(domain, {"input_ids": 11})
    assert [trial.label for trial in trials] == ["prompt", "token", "piece of a prompt"]
    for trial in trials:
        for item in domain.inputs:
            tensor = trial.inputs[item.name]
            assert str(tensor.dtype) == f"torch.{item.dtype}"
            assert tensor.dim() == len(item.shape)
            fixed = [(axis, size) for axis, size in enumerate(item.shape) if isinstance(size, int)]
            assert all(tensor.shape[axis] == size for axis, size in fixed)
        assert int(trial.inputs["input_ids"].max()) < 11


def _without(domain: ModelDomain, name: str) -> ModelDomain:
    return ModelDomain(tuple(item for item in domain.inputs if item.name != name), {})


def _fixed(domain: ModelDomain, axis: int) -> ModelDomain:
    *rest, last = domain.inputs
    shape = (*last.shape[:axis], 5, *last.shape[axis + 1 :])
    return ModelDomain((*rest, dataclasses.replace(last, shape=shape)), {})


def test_a_model_that_keeps_no_contract_gets_no_trials() -> None:
    domain = _domain(KvCache.CONCAT)
    for other in (
        _without(domain, "position_ids"),
        _without(domain, "past_key_values.1.value"),
        ModelDomain(domain.inputs[:3], {}),
        _fixed(domain, 0),
        _fixed(domain, 2),
    ):
        assert trials_of_domain(other, {}) == ()
