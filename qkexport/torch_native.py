"""The native kernels on PyTorch tensors, through the C interfaces of the CPU and CUDA libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from qkexport.errors import InvalidSpecError, QkexportError
from qkexport.native import load_cpu_library
from qkexport.native_cuda import load_cuda_library
from qkexport.native_params import AttentionParams, fill_params
from qkexport.reference import signature_of
from qkexport.signature import AttentionSignature
from qkexport.spec import OP_TYPE, AttentionSpec

_STATUS_INVALID_POSITION: Final = 5
_STATUS_UNSUPPORTED_SIZE: Final = 3
_STRIDED_INPUTS: Final = ("query", "key", "value", "past_key", "past_value")


def run_native(
    spec: AttentionSpec,
    inputs: Mapping[str, torch.Tensor],
    *,
    outputs: tuple[str, ...] = ("output",),
) -> dict[str, torch.Tensor] | None:
    """Computes one QK-norm attention with the native kernel of the inputs' device.

    On a GPU the kernels are enqueued on PyTorch's current stream of that device.

    Args:
        spec: The attributes.
        inputs: The inputs that are present, by the operator's names, on the CPU or on one GPU.
            Projections, caches and masks are read through their strides if their last axis is
            contiguous; others are copied.
        outputs: `("output",)`, or all three names.

    Returns:
        The outputs by name, of the shapes and types of the operator, as `reference_attention`
        gives them; None where the device's library is not built, or inputs are on several devices.

    Raises:
        InvalidSpecError: Inputs that break the contract, a position id outside its cache (on the
            CPU: a GPU gives a row of NaN), or sizes that the CUDA kernels do not have.
        BackendUnavailableError: QKEXPORT_CPU_ISA names a path that this processor lacks.
    """
    devices = {tensor.device for tensor in inputs.values()}
    run = _kernel_of(devices.pop()) if len(devices) == 1 else None
    if run is None:
        return None
    signature = signature_of(spec, inputs, outputs)
    readable = {name: _readable(name, tensor) for name, tensor in inputs.items()}
    results = _allocate(signature, inputs["query"], outputs)
    params = fill_params(signature, readable, results)
    _check_status(run(params), params)
    return results


def _kernel_of(device: torch.device) -> Callable[[AttentionParams], int] | None:
    """What runs attentions on a device and returns a status; None where nothing was built."""
    if device.type == "cpu" and (cpu := load_cpu_library()) is not None:

        def run_cpu(params: AttentionParams) -> int:
            num_threads = torch.get_num_threads()
            workspace = torch.empty(cpu.workspace_size(params, num_threads), dtype=torch.uint8)
            return cpu.run(params, workspace.data_ptr(), workspace.numel(), num_threads)

        return run_cpu
    if device.type == "cuda" and (cuda := load_cuda_library()) is not None:

        def run_cuda(params: AttentionParams) -> int:
            size = cuda.workspace_size(params)
            # PyTorch's allocator knows that the stream still uses what is freed on return.
            with torch.cuda.device(device):
                workspace = torch.empty(size, dtype=torch.uint8, device=device)
                stream = torch.cuda.current_stream(device).cuda_stream
                return cuda.run(params, workspace.data_ptr(), size, stream)

        return run_cuda
    return None


def _readable(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor detached, in place if the kernel can walk its strides, else copied."""
    tensor = tensor.detach()
    if name == "attn_mask" and tensor.dim() > 0 and tensor.stride(-1) in (0, 1):
        return tensor
    strided = name in _STRIDED_INPUTS and tensor.stride(-1) == 1
    return tensor if strided else tensor.contiguous()


def _allocate(
    signature: AttentionSignature, query: torch.Tensor, outputs: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    spec, dims = signature.spec, signature.dims
    sizes = (dims.batch_size, dims.seqlen_q, dims.seqlen_total, dims.head_dim, dims.head_dim_v)
    batch_size, seqlen_q, seqlen_total, head_dim, head_dim_v = (size or 0 for size in sizes)
    shapes: dict[str, tuple[int, ...]] = {
        "output": (batch_size, spec.num_heads, seqlen_q, head_dim_v),
        "present_key": (batch_size, spec.num_kv_heads, seqlen_total, head_dim),
        "present_value": (batch_size, spec.num_kv_heads, seqlen_total, head_dim_v),
    }
    if signature.rank == 3:
        shapes["output"] = (batch_size, seqlen_q, spec.num_heads * head_dim_v)
    return {name: query.new_empty(shapes[name]) for name in outputs}


def _check_status(status: int, params: AttentionParams) -> None:
    if status == _STATUS_INVALID_POSITION:
        rows = max(params.query_rotary.num_rows, params.key_rotary.num_rows)
        message = f"{OP_TYPE} position_ids must lie in [0, {rows}), got one outside."
        raise InvalidSpecError(message, hint="build a longer cache.")
    if status == _STATUS_UNSUPPORTED_SIZE:
        sizes = f"head_dim {params.head_dim} and head_dim_v {params.head_dim_v}"
        message = f"{OP_TYPE} must be of sizes that the kernel of its device has, got {sizes}."
        raise InvalidSpecError(message, note="the CUDA kernels have heads of up to 512 channels.")
    if status != 0:
        message = f"{OP_TYPE} native kernel must succeed, got status {status}."
        raise QkexportError(message)
