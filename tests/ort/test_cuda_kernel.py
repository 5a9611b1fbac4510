"""The kernel of the CUDA provider, in ONNX Runtime on the CPU: its CUDA kernels are emulated.

The library of these tests offers it to the CPU provider. On a GPU the same kernel is run by
tests/gpu/test_ort_cuda.py.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, AttentionCase, attention_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from ort.attention_session import PROVIDERS, attention_model, run_session
from qkexport.native import find_library
from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec, Causal, KvCache

LIBRARY = "libqkexport_ort_cuda_emulated.so"
TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.25)


@pytest.fixture
def library() -> Path:
    path = find_library(LIBRARY)
    if path is None:
        pytest.skip(f"not built: {LIBRARY} (QKEXPORT_BUILD_EMULATION=ON)")
    return path


def session(library: Path, model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library))
    return ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)


def check(library: Path, case: AttentionCase, outputs: tuple[str, ...], packed: bool) -> None:
    exact = reference_attention(case.spec, case.inputs, outputs=outputs)
    model = attention_model(case.spec, case.inputs, outputs, packed=packed, dynamic=True)
    got = run_session(session(library, model), case.inputs)
    for name in outputs:
        limit = TOLERANCES[got[name].dtype]
        torch.testing.assert_close(got[name].double(), exact[name], rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_every_structure_matches_the_reference(library: Path, dtype: torch.dtype) -> None:
    @settings(CASES, max_examples=25)
    @given(st.data(), st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]), st.booleans())
    def drawn(data: st.DataObject, outputs: tuple[str, ...], packed: bool) -> None:
        check(library, data.draw(attention_cases(dtype)), outputs, packed)

    drawn()


def projections(seqlen: int, head_dim: int = 16) -> dict[str, torch.Tensor]:
    return {
        "query": torch.randn(2, seqlen, 4 * head_dim),
        "key": torch.randn(2, seqlen, 2 * head_dim),
        "value": torch.randn(2, seqlen, 2 * head_dim),
    }


def test_sizes_without_a_kernel_are_refused_by_node_and_size(library: Path) -> None:
    inputs = projections(2, head_dim=520)
    opened = session(library, attention_model(SPEC, inputs))
    with pytest.raises(Exception, match=r"Node 'attention': .* got head_dim 520, head_dim_v 520"):
        run_session(opened, inputs)


def test_an_input_of_another_shape_is_refused_when_it_runs(library: Path) -> None:
    inputs = projections(3)
    opened = session(library, attention_model(SPEC, inputs, dynamic=True))
    inputs["value"] = inputs["value"][:, :2]
    with pytest.raises(Exception, match="key and value must be equally long"):
        run_session(opened, inputs)


def test_a_bound_static_cache_is_written_where_it_stands(library: Path) -> None:
    spec = AttentionSpec(
        num_heads=4,
        num_kv_heads=2,
        scale=0.25,
        causal=Causal.LOWER_RIGHT,
        kv_cache=KvCache.STATIC,
    )
    inputs = projections(3) | {
        "past_key": torch.randn(2, 2, 20, 16),
        "past_value": torch.randn(2, 2, 20, 16),
        "kv_lengths": torch.tensor([20, 9]),
    }
    exact = reference_attention(spec, inputs, outputs=ALL_OUTPUTS)
    opened = session(library, attention_model(spec, inputs, ALL_OUTPUTS))
    values = {n: ort.OrtValue.ortvalue_from_numpy(x.numpy()) for n, x in inputs.items()}
    binding = opened.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("output")
    binding.bind_ortvalue_output("present_key", values["past_key"])
    binding.bind_ortvalue_output("present_value", values["past_value"])
    opened.run_with_iobinding(binding)
    for cache, name in (("past_key", "present_key"), ("past_value", "present_value")):
        written = torch.from_numpy(values[cache].numpy())
        torch.testing.assert_close(written.double(), exact[name], rtol=2e-5, atol=2e-5)
    output = torch.from_numpy(binding.get_outputs()[0].numpy())
    torch.testing.assert_close(output.double(), exact["output"], rtol=2e-5, atol=2e-5)
