"""The CUDA kernels, emulated on the CPU, against the Python reference on drawn attentions.

The C++ tests compare them with an oracle of their own; these two oracles share no line.
"""

from __future__ import annotations

import ctypes

import pytest
import torch
from attention_cases import ALL_OUTPUTS, AttentionCase, attention_cases
from cuda_builds import emulated_library
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.native_params import AttentionParams, fill_params
from qkexport.reference import reference_attention, signature_of

__all__ = ["emulated_library"]  # a fixture

# Half a unit in the last place, and how often it may enter: queries, keys, weights and output are
# rounded once each, and scores of normalized vectors multiply the first two.
UNIT_ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-21}
ROUNDINGS = 48


def run_emulated(library: ctypes.CDLL, case: AttentionCase) -> dict[str, torch.Tensor]:
    inputs = {name: x.contiguous() for name, x in case.inputs.items()}
    signature = signature_of(case.spec, inputs, ALL_OUTPUTS)
    expected = reference_attention(case.spec, inputs, outputs=ALL_OUTPUTS)
    outputs = {
        name: torch.full(x.shape, float("nan"), dtype=inputs["query"].dtype)
        for name, x in expected.items()
    }
    params = fill_params(signature, inputs, outputs)
    size = library.qkexport_attention_cuda_workspace_size(ctypes.byref(params))
    workspace = torch.empty(size + 256, dtype=torch.uint8)
    aligned = (workspace.data_ptr() + 255) // 256 * 256
    status = library.qkexport_attention_cuda(
        ctypes.byref(params), ctypes.c_void_p(aligned), ctypes.c_size_t(size), None
    )
    assert status == 0
    return outputs


def test_python_and_kernels_lay_out_the_parameters_alike(emulated_library: ctypes.CDLL) -> None:
    assert emulated_library.qkexport_attention_params_size() == ctypes.sizeof(AttentionParams)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_emulated_kernels_equal_the_reference(
    emulated_library: ctypes.CDLL, dtype: torch.dtype
) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(attention_cases(dtype=dtype))
        outputs = run_emulated(emulated_library, case)
        expected = reference_attention(case.spec, case.inputs, outputs=ALL_OUTPUTS)
        for name, actual in outputs.items():
            reference = expected[name]
            largest = float(reference.abs().max()) if reference.numel() else 0.0
            tolerance = ROUNDINGS * UNIT_ROUNDOFF[dtype] * max(largest, 1.0)
            torch.testing.assert_close(
                actual.double(), reference.double(), rtol=0.0, atol=tolerance, equal_nan=True
            )

    check()
