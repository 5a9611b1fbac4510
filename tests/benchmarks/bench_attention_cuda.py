"""The CUDA kernels against PyTorch on one GPU: `bench_attention_cuda.py LIBRARY`.

Both normalize queries and keys (RMS, with gains) and attend, on the same tensors, timed with CUDA
events: ours in one call of libqkexport_cuda.so, PyTorch as `rms_norm` and
`scaled_dot_product_attention` restricted to one backend. The median of ten samples of five calls,
which are enqueued while the GPU is kept waiting, so that the host's time does not count. Needs
torch alone; says SKIPPED for what a machine lacks. Rows are printed as they are known.
"""

from __future__ import annotations

import ctypes
import dataclasses
import statistics
import sys
from collections.abc import Callable
from typing import Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from qkexport.native_params import AttentionParams, fill_params
from qkexport.reference import signature_of
from qkexport.spec import AttentionSpec, Causal

SAMPLES, CALLS = 10, 5
# Of the GPU's clock, 5 ms at 2 GHz: longer than Python takes to enqueue the calls of a sample.
HEAD_START_CYCLES: Final = 10_000_000
BACKENDS: Final = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
EPSILON: Final = 1e-6
# Largest difference of two bf16 results of the same attention, relative to the largest output.
AGREEMENT: Final = 0.02


@dataclasses.dataclass(frozen=True)
class Problem:
    """`[batch_size, seqlen, num_heads, head_dim]` in bf16; seqlen_q is 1 when decoding."""

    name: str
    batch_size: int
    seqlen_q: int
    seqlen_kv: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool = False


PROBLEMS: Final = (
    Problem("[1,4096,24,128]", 1, 4096, 4096, 24, 24, 128),
    Problem("[1,16384,24,128]", 1, 16384, 16384, 24, 24, 128),
    Problem("[8,1024,16,64]", 8, 1024, 1024, 16, 16, 64),
    Problem("[1,8192,32/8,128] causal", 1, 8192, 8192, 32, 8, 128, causal=True),
    Problem("decode T=8192, 32/8", 1, 1, 8192, 32, 8, 128),
    Problem("decode T=32768, 32/8", 1, 1, 32768, 32, 8, 128),
)


def make_inputs(problem: Problem, device: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    p = problem
    sizes = {
        "query": (p.batch_size, p.num_heads, p.seqlen_q, p.head_dim),
        "key": (p.batch_size, p.num_kv_heads, p.seqlen_kv, p.head_dim),
        "value": (p.batch_size, p.num_kv_heads, p.seqlen_kv, p.head_dim),
        "q_norm_weight": (p.head_dim,),
        "k_norm_weight": (p.head_dim,),
    }
    return {n: torch.randn(s, device=device, dtype=torch.bfloat16) for n, s in sizes.items()}


def kernel_call(
    library: ctypes.CDLL, problem: Problem, inputs: dict[str, torch.Tensor], output: torch.Tensor
) -> Callable[[], None]:
    """One call of the library on the current stream."""
    spec = AttentionSpec(
        num_heads=problem.num_heads,
        num_kv_heads=problem.num_kv_heads,
        scale=problem.head_dim**-0.5,
        qk_norm_epsilon=EPSILON,
        causal=Causal.UPPER_LEFT if problem.causal else Causal.NONE,
    )
    params = fill_params(signature_of(spec, inputs), inputs, {"output": output})
    size = library.qkexport_attention_cuda_workspace_size(ctypes.byref(params))
    workspace = torch.empty(size, dtype=torch.uint8, device=output.device)
    stream = torch.cuda.current_stream().cuda_stream if output.is_cuda else 0

    def call() -> None:
        status = library.qkexport_attention_cuda(
            ctypes.byref(params),
            ctypes.c_void_p(workspace.data_ptr()),
            ctypes.c_size_t(size),
            ctypes.c_void_p(stream),
        )
        if status != 0:
            message = f"the kernels must run, got status {status}"
            raise RuntimeError(message)

    return call


def torch_call(
    problem: Problem, inputs: dict[str, torch.Tensor], backend: SDPBackend
) -> Callable[[], torch.Tensor]:
    shape = (problem.head_dim,)
    grouped = problem.num_heads != problem.num_kv_heads

    def call() -> torch.Tensor:
        q = torch.rms_norm(inputs["query"], shape, inputs["q_norm_weight"], EPSILON)
        k = torch.rms_norm(inputs["key"], shape, inputs["k_norm_weight"], EPSILON)
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, inputs["value"], is_causal=problem.causal, enable_gqa=grouped
            )

    return call


def median_microseconds(call: Callable[[], object]) -> float:
    samples = []
    for _ in range(SAMPLES + 1):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda._sleep(HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        samples.append(1000 * float(begin.elapsed_time(end)) / CALLS)
    return statistics.median(samples[1:])


def bench(library: ctypes.CDLL, problem: Problem) -> list[str]:
    """The row of a problem: our time, and PyTorch's with each backend, or why there is none."""
    inputs = make_inputs(problem, "cuda")
    ours = torch.empty_like(inputs["query"])
    ours_call = kernel_call(library, problem, inputs, ours)
    ours_call()
    row = [problem.name, f"{median_microseconds(ours_call):.1f}"]
    for backend in BACKENDS.values():
        call = torch_call(problem, inputs, backend)
        try:
            theirs = call()
        except (RuntimeError, TypeError) as error:  # no kernel for it, or an older PyTorch
            row.append(f"SKIPPED ({str(error).splitlines()[0][:40]})")
            continue
        difference = float((ours.float() - theirs.float()).abs().max())
        agrees = difference <= AGREEMENT * float(theirs.float().abs().max())
        row.append(f"{median_microseconds(call):.1f}{'' if agrees else ' DIFFERS'}")
    return row


def load_library(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.qkexport_attention_cuda_workspace_size.restype = ctypes.c_size_t
    library.qkexport_attention_params_size.restype = ctypes.c_size_t
    if library.qkexport_attention_params_size() != ctypes.sizeof(AttentionParams):
        message = f"{path} must be built from this tree, got other parameters."
        raise RuntimeError(message)
    return library


def print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main(arguments: list[str]) -> int:
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no CUDA device, nothing was timed.")
        return 0
    if len(arguments) != 1:
        print("usage: bench_attention_cuda.py PATH/libqkexport_cuda.so")
        return 2
    library = load_library(arguments[0])
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bf16, microseconds;")
    print("PyTorch is rms_norm of queries and keys, then scaled_dot_product_attention.")
    header = ["problem", "ours", *(f"PyTorch, {name}" for name in BACKENDS)]
    print_row(header)
    print_row(["---"] * len(header))
    agree = True
    for problem in PROBLEMS:
        row = bench(library, problem)
        print_row(row)
        agree = agree and not any("DIFFERS" in cell for cell in row)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
