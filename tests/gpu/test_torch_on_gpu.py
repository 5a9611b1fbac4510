"""The PyTorch op on CUDA tensors, on a real GPU."""

from __future__ import annotations

import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, attention_cases
from hypothesis import given, settings
from hypothesis import strategies as st

import qkexport.torch_op
from qkexport.native import find_library
from qkexport.native_cuda import CUDA_LIBRARY
from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec, Causal
from qkexport.torch_native import run_native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch has no CUDA device"),
    pytest.mark.skipif(find_library(CUDA_LIBRARY) is None, reason=f"{CUDA_LIBRARY} is not built"),
]
TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SPEC = AttentionSpec(num_heads=8, num_kv_heads=2, scale=0.125, causal=Causal.LOWER_RIGHT)


def tensors(seqlen: int, dtype: torch.dtype = torch.float16) -> dict[str, torch.Tensor]:
    shapes = {"query": (2, 8, seqlen, 64), "key": (2, 2, seqlen, 64), "value": (2, 2, seqlen, 64)}
    return {name: torch.randn(shape).to("cuda", dtype) for name, shape in shapes.items()}


def run_op(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    attributes = qkexport.torch_op.op_attributes(SPEC)
    output = torch.ops.qkexport.qk_norm_attention(*inputs.values(), **attributes)
    assert isinstance(output, torch.Tensor)
    return output


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_the_kernels_match_the_reference(dtype: torch.dtype) -> None:
    @settings(CASES, max_examples=100)
    @given(st.data(), st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]))
    def drawn(data: st.DataObject, outputs: tuple[str, ...]) -> None:
        case = data.draw(attention_cases(dtype))
        exact = reference_attention(case.spec, case.inputs, outputs=outputs)
        on_gpu = {name: x.cuda() for name, x in case.inputs.items()}
        got = run_native(case.spec, on_gpu, outputs=outputs)
        assert got is not None
        for name in outputs:
            assert got[name].device.type == "cuda"
            limit = TOLERANCES[dtype]
            torch.testing.assert_close(
                got[name].cpu().double(), exact[name], rtol=limit, atol=limit
            )

    drawn()


def test_a_side_stream_is_followed_and_never_waited_for() -> None:
    inputs = tensors(257)
    expected = run_op(inputs)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Cycles: tens of milliseconds, in which the host must get ahead.
        torch.cuda._sleep(10**8)  # type: ignore[no-untyped-call]
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        got = run_op(inputs)
        done.record()
    assert not done.query()  # type: ignore[no-untyped-call]
    stream.synchronize()
    assert torch.equal(got, expected)


def test_the_op_is_captured_into_a_graph() -> None:
    inputs = tensors(97)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run_op(inputs)  # the first launch may load the module, which a capture forbids
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run_op(inputs)
    for x in inputs.values():
        x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, run_op(inputs))


def test_a_compiled_module_keeps_the_kernel() -> None:
    inputs = tensors(65)
    compiled = torch.compile(lambda q, k, v: run_op({"query": q, "key": k, "value": v}) * 2)
    torch.testing.assert_close(compiled(*inputs.values()), run_op(inputs) * 2)
