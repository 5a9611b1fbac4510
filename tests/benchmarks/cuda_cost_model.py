"""What the CUDA kernels must move and multiply, and the time that takes at the least.

Nothing here is measured on a GPU: bytes and operations follow from the sizes, peak rates from the
makers' data sheets. `PTX_PER_ELEMENT` was counted by interpreting the kernel's PTX.
"""

from __future__ import annotations

import dataclasses
from typing import Final

ELEMENT_BYTES: Final = 2
ANGLE_BYTES: Final = 4
# Instructions of a thread for each element that is normalized and rotated, loads and stores
# included; head_dim 128, bf16, float32 gains and angles.
PTX_PER_ELEMENT: Final = 72
# Launches of the same attention as single kernels: norm and RoPE of queries and of keys, two copies
# into the cache, attention.
UNFUSED_LAUNCHES: Final = 7


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Dense tensor-core rate with float32 sums, memory and thread-instruction rates a second."""

    name: str
    tensor_flops: float
    memory_bytes: float
    multiprocessors: int
    clock: float

    @property
    def thread_instructions(self) -> float:
        return 128 * self.multiprocessors * self.clock


GPUS: Final = (
    Gpu("A100", 312e12, 2.04e12, 108, 1.41e9),
    Gpu("H100", 989e12, 3.35e12, 132, 1.83e9),
    Gpu("H200", 989e12, 4.8e12, 132, 1.83e9),
    Gpu("RTX 4090", 165e12, 1.01e12, 128, 2.52e9),
)


@dataclasses.dataclass(frozen=True)
class Problem:
    """One attention; decoding appends its new rows to `seqlen_past` rows of a cache."""

    name: str
    batch_size: int
    seqlen_q: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool = False
    seqlen_past: int = 0

    @property
    def seqlen_total(self) -> int:
        return self.seqlen_past + self.seqlen_q

    @property
    def query_elements(self) -> int:
        return self.batch_size * self.seqlen_q * self.num_heads * self.head_dim

    @property
    def new_key_elements(self) -> int:
        return self.batch_size * self.seqlen_q * self.num_kv_heads * self.head_dim

    @property
    def total_key_elements(self) -> int:
        return self.batch_size * self.seqlen_total * self.num_kv_heads * self.head_dim


PROBLEMS: Final = (
    Problem("[1,1024,16/4,128]", 1, 1024, 16, 4, 128),
    Problem("[1,4096,24,128]", 1, 4096, 24, 24, 128),
    Problem("[1,16384,24,128]", 1, 16384, 24, 24, 128),
    Problem("[8,1024,16,64]", 8, 1024, 16, 16, 64),
    Problem("[1,8192,32/8,128] causal", 1, 8192, 32, 8, 128, causal=True),
    Problem("decode T=8192, 32/8", 1, 1, 32, 8, 128, seqlen_past=8191),
    Problem("decode T=32768, 32/8", 1, 1, 32, 8, 128, seqlen_past=32767),
)


@dataclasses.dataclass(frozen=True)
class Launch:
    """Bytes that cross the memory bus, whatever the caches hold, and operations."""

    name: str
    memory_bytes: float
    flops: float = 0.0

    def seconds(self, gpu: Gpu) -> float:
        return max(self.memory_bytes / gpu.memory_bytes, self.flops / gpu.tensor_flops)


def attention_flops(problem: Problem) -> float:
    """Of both products; a causal prefill sees half of its keys."""
    half = 0.5 if problem.causal else 1.0
    rows = problem.batch_size * problem.num_heads * problem.seqlen_q
    return 4.0 * rows * problem.seqlen_total * problem.head_dim * half


def angle_bytes(problem: Problem) -> float:
    return problem.seqlen_q * problem.head_dim * ANGLE_BYTES


def fused_launches(problem: Problem) -> tuple[Launch, ...]:
    """The launches of `run`. Keys that the prologue wrote are read back from the L2 cache."""
    q, k = problem.query_elements, problem.new_key_elements
    prologue = Launch("key prologue", ELEMENT_BYTES * 2 * k + angle_bytes(problem))
    past = problem.total_key_elements - k
    elements = 2 * q + problem.total_key_elements + past  # query, output, values, past keys
    attention = Launch("attention", ELEMENT_BYTES * elements, attention_flops(problem))
    if problem.seqlen_past == 0:
        return prologue, attention
    return prologue, attention, Launch("combine", 0.0)


def least_bytes(problem: Problem) -> float:
    """Query, values, output and past keys once; new keys twice."""
    kv = 2 * problem.total_key_elements
    return ELEMENT_BYTES * (2 * problem.query_elements + kv + problem.new_key_elements)


def unfused_bytes(problem: Problem) -> float:
    """Each of two norms and two rotations reads and writes its tensor; then attention."""
    both = problem.query_elements + problem.new_key_elements
    kv = 2 * problem.total_key_elements
    return ELEMENT_BYTES * (4 * both + 2 * problem.query_elements + kv) + 2 * angle_bytes(problem)


def prologue_share(problem: Problem, gpu: Gpu) -> float:
    """Time of the queries' norm and RoPE, at one instruction a cycle, over that of the products."""
    prologue = PTX_PER_ELEMENT * problem.query_elements / gpu.thread_instructions
    return prologue / (attention_flops(problem) / gpu.tensor_flops)


def print_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def print_costs() -> None:
    rows = []
    for problem in PROBLEMS:
        launches = fused_launches(problem)
        moved = sum(launch.memory_bytes for launch in launches)
        rows.append(
            (
                problem.name,
                " + ".join(f"{launch.memory_bytes / 1e6:.1f}" for launch in launches),
                f"{moved / least_bytes(problem):.2f}",
                f"{unfused_bytes(problem) / moved:.2f}x",
                f"{attention_flops(problem) / 1e9:.1f}",
                *(f"{1e6 * sum(launch.seconds(gpu) for launch in launches):.0f}" for gpu in GPUS),
                f"{100 * prologue_share(problem, GPUS[1]):.1f} %",
            )
        )
    names = tuple(f"{gpu.name} us" for gpu in GPUS)
    header = ("problem", "MB per launch", "of the least", "unfused bytes", "GFLOP")
    print_table((*header, *names, "query norm and RoPE"), rows)


if __name__ == "__main__":
    print_costs()
