"""ONNX Runtime's CUDA provider on the real kernels: numbers, streams, bound caches, graphs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, attention_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from ort.attention_session import attention_model, run_session

from qkexport.native import register_ort
from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec, Causal, KvCache

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        "CUDAExecutionProvider" not in ort.get_available_providers(),
        reason="this ONNX Runtime has no CUDA provider",
    ),
]
TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def session(model: onnx.ModelProto, **provider: str) -> ort.InferenceSession:
    """A session that must place every node on the GPU."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    register_ort(options)
    providers = [("CUDAExecutionProvider", provider)]
    return ort.InferenceSession(model.SerializeToString(), options, providers=providers)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_every_structure_matches_the_reference(dtype: torch.dtype) -> None:
    @settings(CASES, max_examples=60)
    @given(st.data(), st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]), st.booleans())
    def drawn(data: st.DataObject, outputs: tuple[str, ...], packed: bool) -> None:
        case = data.draw(attention_cases(dtype))
        exact = reference_attention(case.spec, case.inputs, outputs=outputs)
        model = attention_model(case.spec, case.inputs, outputs, packed=packed, dynamic=True)
        got = run_session(session(model), case.inputs)
        for name in outputs:
            limit = TOLERANCES[dtype]
            torch.testing.assert_close(got[name].double(), exact[name], rtol=limit, atol=limit)

    drawn()


STATIC = AttentionSpec(
    num_heads=4, num_kv_heads=2, scale=0.25, causal=Causal.LOWER_RIGHT, kv_cache=KvCache.STATIC
)


def static_inputs() -> dict[str, torch.Tensor]:
    inputs = {
        "query": torch.randn(2, 3, 256),
        "key": torch.randn(2, 3, 128),
        "value": torch.randn(2, 3, 128),
        "past_key": torch.randn(2, 2, 20, 64),
        "past_value": torch.randn(2, 2, 20, 64),
    }
    halves = {name: x.half() for name, x in inputs.items()}
    return halves | {"kv_lengths": torch.tensor([20, 9])}


@pytest.mark.parametrize("graph", ["0", "1"])
def test_a_bound_static_cache_is_written_in_place_and_graphs_replay_it(graph: str) -> None:
    inputs = static_inputs()
    exact = reference_attention(STATIC, inputs, outputs=ALL_OUTPUTS)
    opened = session(attention_model(STATIC, inputs, ALL_OUTPUTS), enable_cuda_graph=graph)
    values = {
        name: ort.OrtValue.ortvalue_from_numpy(x.numpy(), "cuda", 0) for name, x in inputs.items()
    }
    output = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3, 256), np.float16), "cuda", 0)
    binding = opened.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("output", output)
    binding.bind_ortvalue_output("present_key", values["past_key"])
    binding.bind_ortvalue_output("present_value", values["past_value"])
    for _ in range(3):  # a graph is recorded in the first run and replayed in the others
        opened.run_with_iobinding(binding)
        found = {
            "output": output,
            "present_key": values["past_key"],
            "present_value": values["past_value"],
        }
        for name, value in found.items():
            got = torch.from_numpy(value.numpy()).double()
            torch.testing.assert_close(got, exact[name], rtol=2e-3, atol=2e-3)


def test_concurrent_runs_of_one_session_do_not_share_workspace() -> None:
    import concurrent.futures

    spec = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.25, causal=Causal.UPPER_LEFT)
    widths = {"query": 256, "key": 128, "value": 128}
    calls = [
        {name: torch.randn(2, seqlen, width).half() for name, width in widths.items()}
        for seqlen in (1, 700, 97, 257) * 8
    ]
    opened = session(attention_model(spec, calls[0], dynamic=True))
    expected = [run_session(opened, inputs)["output"] for inputs in calls]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda inputs: run_session(opened, inputs)["output"], calls))
    assert all(map(torch.equal, got, expected))
