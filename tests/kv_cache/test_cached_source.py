"""Which models get a cache, what is refused, and the check that finds a cache that lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from cached_models import tiny
from qk_norm_models import VisionAttention
from torch import nn

import qkexport
from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.kv_cache import lacks_kv_cache, with_kv_cache
from qkexport.kv_cache.check import check_against_whole
from qkexport.kv_cache.concat import ConcatCacheModel
from qkexport.kv_cache.contract import kind_of_inputs, tensor_names
from qkexport.kv_cache.probe import cache_layers
from qkexport.kv_cache.static import StaticCacheModel
from qkexport.kv_cache.trials import Step, step_inputs, trial_steps
from qkexport.load import TorchSource, load_source
from qkexport.spec import KvCache


@pytest.fixture(scope="module")
def model() -> Any:
    torch.set_num_threads(1)
    return tiny("gemma3_text")


def _source(model: nn.Module, kind: str = "concat") -> TorchSource:
    source = load_source(model)
    assert isinstance(source, TorchSource)
    return with_kv_cache(source, kind)


@pytest.mark.parametrize("kind", list(KvCache))
def test_a_source_brings_names_and_inputs_for_every_tensor(model: Any, kind: KvCache) -> None:
    source = _source(model, kind)
    assert source.names is not None
    assert source.names == tensor_names(kind, cache_layers("m", model))
    for trial in source.trials:
        assert tuple(trial.inputs) == source.names.inputs
        with torch.no_grad():
            own = list(trial.inputs.values())
            assert len(source.module(*own[:3], own[3:])) == len(source.names.outputs)
    assert kind_of_inputs(source.names.inputs) is kind
    assert lacks_kv_cache(load_source(model))
    assert not lacks_kv_cache(source)


def test_trials_start_empty_go_beyond_windows_and_hold_padding() -> None:
    steps = trial_steps(longest_window=19)
    assert {step.past == 0 for step in steps.values()} == {True, False}
    assert max(step.past for step in steps.values()) > 19
    assert any(step.new == 1 for step in steps.values())
    assert all(max(step.padding) < step.past + step.new for step in steps.values())


@pytest.mark.parametrize("kind", list(KvCache))
def test_lengths_masks_and_positions_of_a_trial_fit_together(kind: KvCache) -> None:
    ids, second, third, *_ = step_inputs(
        kind, Step(4, 3, (0, 2)), [], vocabulary=9, dtype=torch.float32
    )
    assert ids.shape == (2, 3)
    if kind is KvCache.CONCAT:
        assert second.tolist() == [[1] * 7, [0, 0, 1, 1, 1, 1, 1]]
        assert third.tolist() == [[4, 5, 6], [2, 3, 4]]
    else:
        assert second.tolist() == [[4, 5, 6], [2, 3, 4]]
        assert third.tolist() == [7, 5]


class _Forgets(ConcatCacheModel):
    """Loses the first row of every past."""

    def forward(self, *inputs: Any) -> Any:
        ids, mask, positions, pasts = inputs
        kept = [past[:, :, min(1, past.shape[2]) :] for past in pasts]
        return super().forward(ids, mask[:, mask.shape[1] - kept[0].shape[2] - ids.shape[1] :],
                               positions, kept)  # fmt: skip


class _Swaps(ConcatCacheModel):
    """Gives each layer the past of the next."""

    def forward(self, *inputs: Any) -> Any:
        ids, mask, positions, pasts = inputs
        return super().forward(ids, mask, positions, [*pasts[2:], *pasts[:2]])


class _WritesLate(StaticCacheModel):
    """Puts new rows one row too far."""

    def forward(self, *inputs: Any) -> Any:
        ids, positions, lengths, buffers = inputs
        return super().forward(ids, positions, lengths + 1, buffers)


@pytest.mark.parametrize("wrapper", [_Forgets, _Swaps, _WritesLate])
def test_a_cache_that_changes_the_results_is_found_before_anything_is_exported(
    model: Any, wrapper: Any
) -> None:
    layers = cache_layers("m", model)
    kind = KvCache.STATIC if issubclass(wrapper, StaticCacheModel) else KvCache.CONCAT
    with pytest.raises(UnsupportedModelError, match=r"logits that differ by|must run with a"):
        check_against_whole("m", model, wrapper(model, layers), kind, layers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_cache": "paged"}, "kv_cache must be one of concat, static, got 'paged'"),
        ({"kv_cache": "static", "opset": 23}, "opset must be at least 24 with a static cache"),
        ({"kv_cache": "concat", "dynamic": ["input_ids:0=b"]}, "dynamic must be left out"),
        ({"kv_cache": "concat", "inputs": {"x": torch.ones(1)}}, "inputs must be left out"),
        ({"kv_cache": "concat"}, "needs a causal LM of transformers, got VisionAttention"),
    ],
)
def test_what_does_not_go_with_a_cache_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        qkexport.convert(VisionAttention(), tmp_path / "m.onnx", **options)


def test_an_exported_program_has_its_inputs_built_in(tmp_path: Path) -> None:
    program = torch.export.export(VisionAttention().eval(), (torch.randn(2, 7, 24),))
    with pytest.raises(UsageError, match="must go with a causal LM"):
        qkexport.convert(program, tmp_path / "m.onnx", kv_cache="concat")
