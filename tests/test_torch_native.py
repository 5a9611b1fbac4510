"""The CPU kernel on PyTorch tensors against the float64 reference."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from attention_cases import ALL_OUTPUTS, AttentionCase, attention_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.errors import BackendUnavailableError, InvalidSpecError
from qkexport.native import load_cpu_library
from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec, Rotary
from qkexport.torch_native import run_native

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCES = {torch.float32: 1e-5, torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}
SPEC = AttentionSpec(num_heads=2, num_kv_heads=2, scale=0.25)


def native(
    spec: AttentionSpec, inputs: dict[str, torch.Tensor], outputs: tuple[str, ...] = ("output",)
) -> dict[str, torch.Tensor]:
    results = run_native(spec, inputs, outputs=outputs)
    assert results is not None, "the library must be built for this test"
    return results


def check(case: AttentionCase, outputs: tuple[str, ...]) -> None:
    exact = reference_attention(case.spec, case.inputs, outputs=outputs)
    got = native(case.spec, case.inputs, outputs)
    for name in outputs:
        limit = TOLERANCES[got[name].dtype]
        torch.testing.assert_close(got[name].double(), exact[name], rtol=limit, atol=limit)


def any_type(dtype: torch.dtype) -> st.SearchStrategy[AttentionCase]:
    return attention_cases(dtype)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(DTYPES).flatmap(any_type), st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]))
def test_every_structure_matches_the_reference(
    case: AttentionCase, outputs: tuple[str, ...]
) -> None:
    check(case, outputs)


def projections(seqlen: int) -> dict[str, torch.Tensor]:
    """Query, key and value as slices of one packed projection, transposed to heads first."""
    packed = torch.randn(2, seqlen, 3, 2, 16)
    return {n: packed[:, :, i].transpose(1, 2) for i, n in enumerate(("query", "key", "value"))}


@pytest.mark.parametrize("seqlen", [1, 30, 300])
def test_views_are_read_through_their_strides(seqlen: int) -> None:
    inputs = projections(seqlen)
    assert not inputs["query"].is_contiguous()
    check(AttentionCase(SPEC, inputs), ("output",))


def test_a_tensor_with_a_strided_last_axis_is_copied() -> None:
    inputs = {name: torch.randn(2, 2, 5, 32)[..., ::2] for name in ("query", "key", "value")}
    check(AttentionCase(SPEC, inputs), ("output",))


def test_expanded_masks_are_read_in_place() -> None:
    inputs = projections(40)
    for mask in (torch.randn(1, 1, 1, 40), torch.randn(1, 1, 40, 1), torch.randn(1, 1, 1, 1)):
        for form in (mask, mask > 0):
            check(
                AttentionCase(SPEC, inputs | {"attn_mask": form.expand(2, 2, 40, 40)}), ("output",)
            )


def test_more_threads_give_the_same_answer() -> None:
    inputs = projections(300)
    one = native(SPEC, inputs)["output"]
    torch.set_num_threads(3)
    try:
        torch.testing.assert_close(native(SPEC, inputs)["output"], one)
    finally:
        torch.set_num_threads(1)


def test_the_inputs_are_not_changed() -> None:
    inputs = projections(9)
    copies = {name: x.clone() for name, x in inputs.items()}
    native(SPEC, inputs, ALL_OUTPUTS)
    assert all(torch.equal(inputs[name], copy) for name, copy in copies.items())


def test_a_position_outside_the_cache_is_refused() -> None:
    spec = dataclasses.replace(SPEC, rotary=Rotary.AFTER_NORM)
    cache = {"cos_cache": torch.ones(4, 8), "sin_cache": torch.ones(4, 8)}
    inputs = projections(2) | cache | {"position_ids": torch.tensor([[0, 4]])}
    with pytest.raises(InvalidSpecError, match=r"position_ids must lie in \[0, 4\)"):
        native(spec, inputs)


def test_tensors_elsewhere_are_left_to_the_caller() -> None:
    inputs = {name: x.to("meta") for name, x in projections(2).items()}
    assert run_native(SPEC, inputs) is None


def test_without_the_library_the_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkexport.torch_native.load_cpu_library", lambda: None)
    assert run_native(SPEC, projections(2)) is None


def test_an_unknown_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = load_cpu_library()
    assert library is not None
    assert library.isa in library.available_isas
    monkeypatch.setenv("QKEXPORT_CPU_ISA", "mmx")
    with pytest.raises(BackendUnavailableError, match=r"got 'mmx'\.\nNote: available: portable"):
        native(SPEC, projections(2))
