"""The PyTorch op on CUDA tensors: what it hands to the kernels, which are emulated here.

The tensors stay on the CPU; only the question where they are is answered with a GPU. The same
calls on a real one are in tests/gpu.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, AttentionCase, attention_cases
from cuda_builds import BUILD, emulated_library
from hypothesis import given, settings
from hypothesis import strategies as st

from qkexport import torch_native
from qkexport.errors import InvalidSpecError
from qkexport.native_cuda import CudaLibrary
from qkexport.native_params import AttentionParams
from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec
from qkexport.torch_native import run_native

__all__ = ["emulated_library"]  # a fixture

TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
STREAM = 77
DEVICE = torch.device("cuda", 1)


@dataclasses.dataclass
class Recorded:
    """What the kernels were asked for."""

    devices: list[torch.device] = dataclasses.field(default_factory=list)
    streams: list[int] = dataclasses.field(default_factory=list)


class RecordingLibrary(CudaLibrary):
    """Remembers the streams; null is the only one that the emulation knows."""

    def __init__(self, path: Path, recorded: Recorded) -> None:
        super().__init__(path)
        self._recorded = recorded

    def run(
        self, params: AttentionParams, workspace: int, workspace_bytes: int, stream: int
    ) -> int:
        self._recorded.streams.append(stream)
        memory = torch.empty(workspace_bytes + 256, dtype=torch.uint8)
        aligned = memory.data_ptr() + -memory.data_ptr() % 256
        return super().run(params, aligned, workspace_bytes, 0)


@pytest.fixture
def on_cuda(emulated_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded()
    library = RecordingLibrary(
        BUILD / "emulation" / "emulation" / "libqkexport_cuda_emulated.so", recorded
    )

    @contextlib.contextmanager
    def current(device: torch.device) -> Iterator[None]:
        recorded.devices.append(device)
        yield

    def stream(device: torch.device) -> types.SimpleNamespace:
        assert device == DEVICE
        return types.SimpleNamespace(cuda_stream=STREAM)

    kernel_of = torch_native._kernel_of
    empty = torch.empty
    monkeypatch.setattr(torch_native, "load_cuda_library", lambda: library)
    monkeypatch.setattr(torch_native, "_kernel_of", lambda device: kernel_of(DEVICE))
    monkeypatch.setattr(torch.cuda, "device", current)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    monkeypatch.setattr(
        torch, "empty", lambda *size, device=None, **options: empty(*size, **options)
    )
    return recorded


def check(case: AttentionCase, outputs: tuple[str, ...]) -> None:
    exact = reference_attention(case.spec, case.inputs, outputs=outputs)
    got = run_native(case.spec, case.inputs, outputs=outputs)
    assert got is not None
    for name in outputs:
        limit = TOLERANCES[got[name].dtype]
        torch.testing.assert_close(got[name].double(), exact[name], rtol=limit, atol=limit)


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_cuda_tensors_match_the_reference(dtype: torch.dtype) -> None:
    @settings(CASES, max_examples=25)
    @given(st.data(), st.sampled_from([ALL_OUTPUTS, ALL_OUTPUTS[:1]]))
    def drawn(data: st.DataObject, outputs: tuple[str, ...]) -> None:
        case = data.draw(attention_cases(dtype))
        check(case, outputs)

    drawn()


def packed(seqlen: int = 30, head_dim: int = 16) -> dict[str, torch.Tensor]:
    """Slices of one packed projection, heads first: nothing of it is contiguous."""
    projection = torch.randn(2, seqlen, 3, 2, head_dim)
    return {
        name: projection[:, :, index].transpose(1, 2)
        for index, name in enumerate(("query", "key", "value"))
    }


SPEC = AttentionSpec(num_heads=2, num_kv_heads=2, scale=0.25)


@pytest.mark.usefixtures("on_cuda")
def test_views_are_read_through_their_strides() -> None:
    check(AttentionCase(SPEC, packed()), ("output",))


def test_the_current_stream_of_the_tensors_device_is_used(on_cuda: Recorded) -> None:
    run_native(SPEC, packed())
    assert on_cuda.devices == [DEVICE]
    assert on_cuda.streams == [STREAM]


@pytest.mark.usefixtures("on_cuda")
def test_sizes_without_a_kernel_are_refused() -> None:
    with pytest.raises(InvalidSpecError, match="got head_dim 520 and head_dim_v 520"):
        run_native(SPEC, packed(3, 520))


def test_the_op_itself_gets_there(on_cuda: Recorded) -> None:
    import qkexport.torch_op

    inputs = packed()
    attributes = qkexport.torch_op.op_attributes(SPEC)
    output = torch.ops.qkexport.qk_norm_attention(*inputs.values(), **attributes)
    exact = reference_attention(SPEC, inputs)["output"]
    torch.testing.assert_close(output.double(), exact, rtol=2e-5, atol=2e-5)
    assert on_cuda.streams == [STREAM]


def test_without_the_library_there_is_no_native_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_native, "load_cuda_library", lambda: None)
    assert torch_native._kernel_of(DEVICE) is None
    assert torch_native._kernel_of(torch.device("meta")) is None
