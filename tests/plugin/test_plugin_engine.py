"""What a builder learns from the plugin: profiles, workspace, aliases, and its names for caches."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from attention_cases import ALL_OUTPUTS

from qkexport.reference import reference_attention
from qkexport.run.plugin_attention import PluginRunner
from qkexport.run.plugin_host import PluginEngine, PluginError, PluginInput
from qkexport.spec import AttentionSpec, Causal, KvCache, QkNorm

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.25, causal=Causal.LOWER_RIGHT)
STATIC = dataclasses.replace(SPEC, kv_cache=KvCache.STATIC)

# (batch, queries, past) at the ends of a profile.
Sizes = tuple[int, int, int]


def profile(smallest: Sizes, largest: Sizes) -> dict[str, PluginInput]:
    """Query, key, value and a cache of float16, between two sizes."""

    def shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
        batch, seqlen, past = sizes
        tokens = {"query": (batch, seqlen, 64), "key": (batch, seqlen, 32)}
        cache = (batch, 2, past, 16)
        return tokens | {"value": (batch, seqlen, 32), "past_key": cache, "past_value": cache}

    low, high = shapes(smallest), shapes(largest)
    return {name: PluginInput("float16", low[name], high[name], high[name]) for name in low}


def engine(*profiles: dict[str, PluginInput], spec: AttentionSpec = SPEC) -> PluginEngine:
    first = PluginRunner(spec, profiles[0], ALL_OUTPUTS)
    attributes = spec.to_attributes(
        input_roles=",".join(first.roles), output_roles=",".join(ALL_OUTPUTS)
    )
    ordered = [[inputs[name] for name in first.roles] for inputs in profiles]
    return first.engine.host.build("QKNormAttention", attributes, *ordered)


@pytest.mark.parametrize("fewest", [1, 30, 64])
def test_workspace_is_exactly_what_the_neediest_call_needs(fewest: int) -> None:
    # 600 past keys are split in two, with up to 80 new ones too: lengths of queries decide alone.
    sizes = [(batch, seqlen, 600) for batch in (1, 2) for seqlen in range(fewest, 81)]
    needed = [engine(profile(size, size)).workspace_size for size in sizes]
    assert engine(profile((1, fewest, 0), (2, 80, 600))).workspace_size == max(needed)


def test_every_profile_has_a_workspace_of_its_own() -> None:
    decode, prefill = profile((1, 1, 0), (1, 1, 700)), profile((1, 64, 0), (2, 400, 0))
    both = engine(decode, prefill)
    alone = (engine(decode).workspace_size, engine(prefill).workspace_size)
    assert both.workspace_sizes == alone
    assert both.workspace_size == max(alone)


def test_there_is_no_context_for_a_profile_that_does_not_exist() -> None:
    with pytest.raises(PluginError, match="Engine must have the profile, got 1"):
        engine(profile((1, 1, 0), (1, 1, 7))).attach(1)


def test_profiles_must_describe_the_same_inputs() -> None:
    wide = profile((1, 1, 0), (1, 1, 7))
    wide["query"] = PluginInput.fixed("float32", (1, 1, 64))
    with pytest.raises(PluginError, match="Profiles must agree in the types and ranks"):
        engine(profile((1, 1, 0), (1, 1, 7)), wide)


def static_inputs() -> dict[str, torch.Tensor]:
    inputs = {"query": torch.randn(2, 3, 64), "key": torch.randn(2, 3, 32)}
    inputs |= {"value": torch.randn(2, 3, 32), "past_key": torch.randn(2, 2, 20, 16)}
    inputs |= {"past_value": torch.randn(2, 2, 20, 16), "kv_lengths": torch.tensor([20, 9])}
    return inputs


def test_a_static_cache_is_written_where_it_stands_or_into_a_copy() -> None:
    inputs = static_inputs()
    runner = PluginRunner.for_tensors(STATIC, inputs, ALL_OUTPUTS)
    exact = reference_attention(STATIC, inputs, outputs=ALL_OUTPUTS)
    copied, in_place = runner.run(inputs), runner.run(inputs, in_place=True)
    for name in ALL_OUTPUTS:
        assert torch.equal(copied[name], in_place[name])
        torch.testing.assert_close(in_place[name].double(), exact[name], rtol=1e-5, atol=1e-5)


def test_only_presents_of_a_static_cache_share_the_memory_of_their_past() -> None:
    inputs = static_inputs()
    static = PluginRunner.for_tensors(STATIC, inputs, ALL_OUTPUTS)
    assert [static.roles[index] for index in static.engine.aliased_inputs[1:]] == [
        "past_key",
        "past_value",
    ]
    assert static.engine.aliased_inputs[0] == -1
    concat = PluginRunner.for_tensors(SPEC, inputs, ALL_OUTPUTS)
    assert concat.engine.aliased_inputs == (-1, -1, -1)


def test_a_timing_cache_tells_attributes_apart_and_knows_equal_ones() -> None:
    sizes = profile((1, 1, 0), (1, 8, 7))
    other = dataclasses.replace(SPEC, qk_norm=QkNorm.LAYER)
    assert engine(sizes).timing_cache_id == engine(sizes).timing_cache_id
    assert engine(sizes).timing_cache_id != engine(sizes, spec=other).timing_cache_id
