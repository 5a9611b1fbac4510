"""Scores that are infinite because keys are: reference, CPU and CUDA kernels follow one rule."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
from cuda_builds import emulated_library

from qkexport.native_params import fill_params
from qkexport.reference import reference_attention, signature_of
from qkexport.spec import AttentionSpec, QkNorm
from qkexport.torch_native import run_native

__all__ = ["emulated_library"]  # a fixture

CHANNEL = 2  # where keys are spoiled; queries are positive there
SPEC = AttentionSpec(
    num_heads=1,
    num_kv_heads=1,
    scale=1.0,
    qk_norm=QkNorm.L2,
    qk_norm_epsilon=1e-6,
    normalize_key=False,
)
SIZES = [(3, 5, 8), (70, 70, 64), (1, 600, 64)]  # prefill, both kinds of softmax; split keys


def draw(sizes: tuple[int, int, int], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    seqlen_q, seqlen_kv, head_dim = sizes
    torch.manual_seed(seqlen_q)
    tensors = {
        "query": torch.rand(1, 1, seqlen_q, head_dim) + 0.1,
        "key": torch.randn(1, 1, seqlen_kv, head_dim),
        "value": torch.randn(1, 1, seqlen_kv, head_dim),
    }
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def on_emulated_cuda(library: ctypes.CDLL, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    output = torch.empty_like(inputs["query"])
    params = fill_params(signature_of(SPEC, inputs), inputs, {"output": output})
    size = library.qkexport_attention_cuda_workspace_size(ctypes.byref(params))
    workspace = torch.empty(size + 256, dtype=torch.uint8)
    aligned = workspace.data_ptr() + -workspace.data_ptr() % 256
    status = library.qkexport_attention_cuda(
        ctypes.byref(params), ctypes.c_void_p(aligned), ctypes.c_size_t(size), None
    )
    assert status == 0
    return output


def results(library: ctypes.CDLL, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Output of the reference, of the CPU kernels and of the CUDA kernels."""
    native = run_native(SPEC, inputs)
    assert native is not None, "the library must be built for this test"
    reference = reference_attention(SPEC, inputs)["output"]
    return [reference, native["output"], on_emulated_cuda(library, inputs)]


@pytest.fixture(params=SIZES, ids=str)
def sizes(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    found: tuple[int, int, int] = request.param
    return found


@pytest.fixture(params=[torch.float32, torch.float16, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


def test_a_row_whose_scores_are_all_minus_infinity_is_zero(
    emulated_library: ctypes.CDLL, sizes: tuple[int, int, int], dtype: torch.dtype
) -> None:
    inputs = draw(sizes, dtype)
    inputs["key"][..., CHANNEL] = -math.inf
    for output in results(emulated_library, inputs):
        assert not output.any()


def test_so_is_one_that_may_see_no_other_key(
    emulated_library: ctypes.CDLL, sizes: tuple[int, int, int], dtype: torch.dtype
) -> None:
    inputs = draw(sizes, dtype)
    inputs["key"][:, :, :2, CHANNEL] = -math.inf
    inputs["attn_mask"] = torch.arange(sizes[1]) < 2
    for output in results(emulated_library, inputs):
        assert not output.any()


def test_a_score_of_minus_infinity_hides_its_key(
    emulated_library: ctypes.CDLL, sizes: tuple[int, int, int], dtype: torch.dtype
) -> None:
    inputs = draw(sizes, dtype)
    masked = inputs | {"attn_mask": torch.arange(sizes[1]) != 1}
    expected = reference_attention(SPEC, masked)["output"]
    inputs["key"][:, :, 1, CHANNEL] = -math.inf
    for output in results(emulated_library, inputs):
        torch.testing.assert_close(output.double(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("poison", [math.inf, math.nan])
def test_any_other_score_that_is_not_finite_makes_its_rows_nan(
    emulated_library: ctypes.CDLL, sizes: tuple[int, int, int], dtype: torch.dtype, poison: float
) -> None:
    inputs = draw(sizes, dtype)
    inputs["key"][:, :, 1, CHANNEL] = poison
    inputs["key"][:, :, 3, CHANNEL] = -math.inf
    for output in results(emulated_library, inputs):
        assert output.isnan().all()
