"""The TensorRT plugin, driven by the host over its emulated kernels, against float64."""

from __future__ import annotations

import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, AttentionCase, attention_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from qkexport.reference import reference_attention
from qkexport.run.plugin_attention import PluginRunner
from qkexport.run.plugin_host import PluginError, PluginInput
from qkexport.signature import INPUT_NAMES
from qkexport.spec import AttentionSpec, KvCache, Rotary

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def assert_within_tolerance(case: AttentionCase, outputs: tuple[str, ...]) -> None:
    """The plugin errs at most twice what the contract computed in PyTorch does, plus the floor."""
    exact = reference_attention(case.spec, case.inputs, outputs=outputs)
    rounded = reference_attention(
        case.spec, case.inputs, outputs=outputs, compute_dtype=torch.float32
    )
    runner = PluginRunner.for_tensors(case.spec, case.inputs, outputs)
    got = runner.run(case.inputs)
    dtype = case.inputs["query"].dtype
    for name in outputs:
        assert got[name].shape == exact[name].shape
        assert got[name].dtype == dtype
        assert not got[name].isnan().any(), name
        if exact[name].numel():
            error = (got[name].double() - exact[name]).abs()
            baseline = (rounded[name].double() - exact[name]).abs().amax(-1, keepdim=True)
            floor = torch.finfo(dtype).eps * _magnitude(case, name, exact[name])
            assert (error <= 2 * baseline + floor + 2e-6).all(), (name, error.max())


def _magnitude(case: AttentionCase, name: str, exact: torch.Tensor) -> torch.Tensor:
    """What rounding is relative to: an output may be what is left where values cancel."""
    if name != "output":
        return exact.abs()
    values = [case.inputs[key] for key in ("value", "past_value") if key in case.inputs]
    largest = [x.double().abs().max() for x in values if x.numel()]
    return torch.stack(largest).max() if largest else torch.zeros(())


def any_type(dtype: torch.dtype) -> st.SearchStrategy[AttentionCase]:
    return attention_cases(dtype)


@settings(CASES, max_examples=60)
@given(
    st.sampled_from(DTYPES).flatmap(any_type),
    st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]),
)
def test_every_structure_matches_the_reference(
    case: AttentionCase, outputs: tuple[str, ...]
) -> None:
    assert_within_tolerance(case, outputs)


@pytest.mark.nightly
@settings(CASES, max_examples=1500)
@given(
    st.sampled_from(DTYPES).flatmap(any_type),
    st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]),
)
def test_every_structure_matches_the_reference_at_length(
    case: AttentionCase, outputs: tuple[str, ...]
) -> None:
    assert_within_tolerance(case, outputs)


def _case(
    seqlen: int = 33, past: int = 0, dtype: torch.dtype = torch.float16, **attributes: object
) -> AttentionCase:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.2, **attributes)  # type: ignore[arg-type]
    inputs = {
        "query": torch.randn(2, seqlen, 4 * 24),
        "key": torch.randn(2, seqlen, 2 * 24),
        "value": torch.randn(2, seqlen, 2 * 16),
        "q_norm_weight": torch.randn(24),
        "k_norm_weight": torch.randn(24),
    }
    if past:
        inputs["past_key"] = torch.randn(2, 2, past, 24)
        inputs["past_value"] = torch.randn(2, 2, past, 16)
    return AttentionCase(spec, {name: x.to(dtype) for name, x in inputs.items()})


@pytest.mark.parametrize("seqlen", [1, 2, 59, 97])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_awkward_lengths_match(seqlen: int, dtype: torch.dtype) -> None:
    assert_within_tolerance(_case(seqlen, past=7, dtype=dtype, causal="lower_right"), ALL_OUTPUTS)


def test_what_was_serialized_is_what_runs() -> None:
    case = _case(causal="upper_left", window_left=3, softcap=2.5, qk_norm="layer")
    runner = PluginRunner.for_tensors(case.spec, case.inputs)
    echoed = dict(
        item.split("=", 1)
        for item in runner.engine.metadata.replace(",key,", ";key;").split(",")
        if "=" in item
    )
    for name, value in case.spec.to_attributes().items():
        if name not in ("input_roles", "output_roles"):
            expected = f"{value:.9g}" if isinstance(value, float) else str(value)
            assert echoed[name] == expected
    assert_within_tolerance(case, ("output",))


def test_one_engine_serves_every_shape_of_its_profile() -> None:
    case = _case(64)
    profile = {
        name: PluginInput(
            "float16", (1, 1, x.shape[-1]), (2, 16, x.shape[-1]), (2, 64, x.shape[-1])
        )
        if x.dim() == 3
        else PluginInput.fixed("float16", x.shape)
        for name, x in case.inputs.items()
    }
    runner = PluginRunner(case.spec, profile)
    for batch_size, seqlen in ((2, 64), (1, 1), (2, 17), (1, 64)):
        inputs = {
            name: x[:batch_size, :seqlen] if x.dim() == 3 else x for name, x in case.inputs.items()
        }
        exact = reference_attention(case.spec, inputs)["output"]
        torch.testing.assert_close(runner.run(inputs)["output"].double(), exact, rtol=0, atol=4e-3)


def test_contexts_of_one_engine_do_not_share_shapes() -> None:
    case = _case(40)
    sizes = (40, 9)
    profile = {
        name: PluginInput("float16", (1, 1, x.shape[-1]), (2, 8, x.shape[-1]), (2, 40, x.shape[-1]))
        if x.dim() == 3
        else PluginInput.fixed("float16", x.shape)
        for name, x in case.inputs.items()
    }
    engine = PluginRunner(case.spec, profile).engine
    contexts = [engine.attach() for _ in sizes]
    calls = []
    for context, seqlen in zip(contexts, sizes, strict=True):
        tensors = [
            (x[:, :seqlen] if x.dim() == 3 else x).contiguous() for x in case.inputs.values()
        ]
        calls.append((context, tensors, context.set_shapes([x.shape for x in tensors])[0]))
    workspace = torch.empty(engine.workspace_size + 256, dtype=torch.uint8)
    address = workspace.data_ptr() + -workspace.data_ptr() % 256
    for context, tensors, shape in calls:  # shapes of both were announced before either runs
        output = torch.full(shape, torch.nan, dtype=torch.float16)
        context.enqueue([x.data_ptr() for x in tensors], [output.data_ptr()], address)
        inputs = dict(zip(case.inputs, tensors, strict=True))
        exact = reference_attention(case.spec, inputs)["output"]
        torch.testing.assert_close(output.double(), exact, rtol=0, atol=4e-3)


@pytest.mark.parametrize("outputs", [ALL_OUTPUTS, ALL_OUTPUTS[:1]], ids=len)
@pytest.mark.parametrize("past", [0, 7])
@pytest.mark.parametrize("seqlen", [1, 2, 59, 97])
def test_nothing_is_written_outside_the_workspace(
    seqlen: int, past: int, outputs: tuple[str, ...]
) -> None:
    case = _case(seqlen, past=past, causal="lower_right")
    engine = PluginRunner.for_tensors(case.spec, case.inputs, outputs).engine
    context = engine.attach()
    tensors = [
        x for _, x in sorted(case.inputs.items(), key=lambda item: INPUT_NAMES.index(item[0]))
    ]
    shapes = context.set_shapes([x.shape for x in tensors])
    results = [torch.empty(shape, dtype=torch.float16) for shape in shapes]
    memory = torch.full((engine.workspace_size + 2048,), 0xAB, dtype=torch.uint8)
    start = 512 + -(memory.data_ptr() + 512) % 256
    end = start + engine.workspace_size
    context.enqueue(
        [x.data_ptr() for x in tensors], [x.data_ptr() for x in results], memory.data_ptr() + start
    )
    assert (memory[:start] == 0xAB).all()
    assert (memory[end:] == 0xAB).all()
    exact = reference_attention(case.spec, case.inputs)["output"]
    torch.testing.assert_close(results[0].double(), exact, rtol=0, atol=4e-3)


def test_a_static_cache_gets_the_new_rows() -> None:
    case = _case(3, past=20, dtype=torch.float32, kv_cache=KvCache.STATIC, causal="lower_right")
    case.inputs["kv_lengths"] = torch.tensor([9, 20])
    assert_within_tolerance(case, ALL_OUTPUTS)


def test_a_thousand_engines_come_and_go() -> None:
    case = _case(1)
    for _ in range(1000):
        PluginRunner.for_tensors(case.spec, case.inputs)


def test_shapes_outside_the_profile_are_refused() -> None:
    case = _case(8)
    runner = PluginRunner.for_tensors(case.spec, case.inputs)
    longer = {name: x.repeat(1, 2, 1) if x.dim() == 3 else x for name, x in case.inputs.items()}
    with pytest.raises(PluginError, match="Input 0 must lie in the engine's profile"):
        runner.run(longer)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_heads": 3}, "num_heads must be a multiple of num_kv_heads, got 3 and 2"),
        ({"qk_norm": "rmsnorm"}, "attribute qk_norm is not a known value, got 'rmsnorm'"),
        ({"scale": 1}, "attribute scale must be one float32, got field type 5 of length 1"),
        ({"causal": 1}, "attribute causal must be characters, got field type 5"),
        ({"scale": None}, "needs every attribute written out, got none for scale"),
        ({"scal": 1.0}, "has no attribute of that name, got 'scal'"),
        ({"plugin_version": "2"}, "attribute plugin_version must be '1', got '2'"),
        ({"rotary_dim": 3}, "attribute rotary_dim must be even, got 3"),
        ({"input_roles": "query,key"}, "needs query, key and value, got input_roles 'query,key'"),
        ({"input_roles": "query,key,value"}, "must name as many inputs .* got 3 for 5"),
        ({"input_roles": "query,key,value,key,k_norm_weight"}, "each input once, got 'key' twice"),
        ({"input_roles": "query,key,value,mask,k_norm_weight"}, "must name inputs .* got 'mask'"),
        ({"output_roles": "present_key"}, "output_roles must be '' or 'output'"),
    ],
)
def test_fields_that_break_the_contract_are_refused(
    changed: dict[str, object], message: str
) -> None:
    case = _case(4)
    host = PluginRunner.for_tensors(case.spec, case.inputs).engine.host
    attributes = {
        **case.spec.to_attributes(input_roles=",".join(case.inputs), output_roles="output"),
        **changed,
    }
    attributes = {name: value for name, value in attributes.items() if value is not None}
    inputs = [PluginInput.fixed("float16", x.shape) for x in case.inputs.values()]
    with pytest.raises(PluginError, match=message):
        host.build("QKNormAttention", attributes, inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "replacement", "message"),
    [
        ("value", PluginInput.fixed("float32", (2, 4, 32)), "value must be of a supported type"),
        (
            "key",
            PluginInput.fixed("float16", (2, 4, 50)),
            "head_dim of query and key must be equal",
        ),
        ("q_norm_weight", PluginInput.fixed("float16", (23,)), "q_norm_weight must be"),
        ("key", PluginInput.fixed("float16", (2, 2, 4, 24)), "must share rank 3 or 4"),
    ],
)
def test_inputs_that_break_the_contract_are_refused(
    name: str, replacement: PluginInput, message: str
) -> None:
    case = _case(4)
    inputs = {key: PluginInput.fixed("float16", x.shape) for key, x in case.inputs.items()}
    with pytest.raises(PluginError, match=message):
        PluginRunner(case.spec, {**inputs, name: replacement})


def test_a_plugin_of_another_version_is_not_found() -> None:
    case = _case(4)
    host = PluginRunner.for_tensors(case.spec, case.inputs).engine.host
    with pytest.raises(PluginError, match="got QKNormAttention version 1 namespace ''"):
        host.build("QKNormAttention", {}, [], version="2")


def test_rotary_needs_its_caches() -> None:
    case = _case(4, rotary=Rotary.AFTER_NORM)
    with pytest.raises(PluginError, match="cos_cache"):
        PluginRunner.for_tensors(case.spec, case.inputs)
