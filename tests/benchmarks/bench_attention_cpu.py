"""QK-norm attention on the CPU: ours against ONNX Runtime's own operators and PyTorch.

Every row is timed in one process, the contestants taking turns; figures are medians, and a ratio
is the median of the ratios of one turn. On a shared machine `--cpu` counts CPU time on one thread
instead of wall time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from contestants import CONTESTANTS, Problem, Run

CAUSAL_LENGTHS = (512, 1024, 2048, 4096)


def problems() -> dict[str, list[Problem]]:
    """The rows of the table, by section."""
    prefill = [
        Problem(seqlen, head_dim, num_kv_heads=num_kv_heads, causal=causal)
        for causal in (True, False)
        for seqlen in CAUSAL_LENGTHS
        for head_dim in (64, 128)
        for num_kv_heads in (8, 2)
    ]
    bfloat16 = [
        Problem(seqlen, head_dim, causal=causal, dtype=torch.bfloat16)
        for causal in (True, False)
        for seqlen in (512, 2048)
        for head_dim in (64, 128)
    ]
    decode = [
        Problem(1, 128, num_heads=16, cache_rows=rows, dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16)
        for rows in (1024, 8192, 32768)
    ]
    forms = [
        Problem(1024, 64, rope=True),
        Problem(1024, 64, causal=False, mask="bool"),
        Problem(1024, 64, causal=False, mask="additive"),
    ]
    windows = [
        Problem(64, 32, num_heads=6, num_kv_heads=6, batch_size=64, causal=False, window=True),
        Problem(
            64,
            32,
            num_heads=6,
            num_kv_heads=6,
            batch_size=64,
            causal=False,
            window=True,
            dtype=torch.bfloat16,
        ),
    ]
    return {
        "prefill float32": prefill,
        "prefill bfloat16": bfloat16,
        "RoPE, gains and masks": forms,
        "Swin V2 windows": windows,
        "decode, static cache": decode,
    }


def measure(
    problem: Problem,
    threads: int,
    seconds: float,
    turns: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Times of each contestant that can run the problem, turn by turn."""
    made = {name: make(problem, threads) for name, make in CONTESTANTS.items()}
    runs: dict[str, Run] = {name: run for name, run in made.items() if run is not None}
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times["ours"]) < turns:
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    return times


def label(problem: Problem) -> str:
    dtype = str(problem.dtype).removeprefix("torch.")
    if problem.window:
        return f"{problem.batch_size} windows of {problem.seqlen}, D {problem.head_dim}, {dtype}"
    heads = f"H {problem.num_heads}/{problem.num_kv_heads}, D {problem.head_dim}"
    if problem.cache_rows:
        return f"T {problem.cache_rows}, {heads}, {dtype}"
    kind = "causal" if problem.causal else "full"
    extra = ", RoPE" if problem.rope else f", {problem.mask} mask" if problem.mask else ""
    return f"{kind}, S {problem.seqlen}, {heads}{extra}"


def cells(problem: Problem, times: dict[str, list[float]], peak: Peak) -> list[str]:
    """One row of the table: our figure, its share of the peaks, then the ratios."""
    own = statistics.median(times["ours"])
    rate, limit, unit = problem.flops / own / 1e9, peak.multiply_adds, "GF/s"
    if problem.cache_rows:
        rate, limit, unit = problem.cache_bytes / own / 1e9, peak.reads, "GB/s"
    row = [label(problem), f"{own * 1e3:.2f}", f"{rate:.0f} {unit}", f"{100 * rate / limit:.0f} %"]
    tiles = tile_products(problem)
    shown = tiles and peak.tiles and not problem.cache_rows
    row.append(f"{100 * tiles * rate / peak.tiles:.0f} %" if shown else "")
    for name in list(CONTESTANTS)[1:]:
        row.append(f"{ratio(times, name):.2f}" if name in times else "")
    return row


def ratio(times: dict[str, list[float]], name: str) -> float:
    """How many times longer `name` takes than we do."""
    return statistics.median(b / a for a, b in zip(times["ours"], times[name], strict=True))


class Peak(NamedTuple):
    """What this machine reaches: GF/s of float32, GB/s, and GF/s of bfloat16 tiles (or 0)."""

    multiply_adds: float
    reads: float
    tiles: float


def tile_products(problem: Problem) -> int:
    """Tile products for one of the problem's: float32 is split in parts; 0: no tiles are used."""
    rows = problem.num_heads // problem.num_kv_heads * problem.seqlen
    if problem.dtype == torch.bfloat16:
        return 1
    return 6 if rows >= 128 else 0


def machine_peak(threads: int, clock: str = "wall") -> Peak:
    """Measures this machine."""
    source = Path(__file__).parent / "machine_peak.cc"
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "machine_peak"
        flags = ["-O2", "-march=native", "-ffp-contract=fast", "-pthread"]
        subprocess.run(["c++", *flags, str(source), "-o", str(binary)], check=True)
        output = subprocess.run(
            [binary, str(threads), clock], check=True, capture_output=True, text=True
        )
    return Peak(*map(float, output.stdout.split()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each row")
    parser.add_argument("--turns", type=int, default=5, help="turns at least")
    parser.add_argument("--section", default="", help="only sections that contain this text")
    parser.add_argument("--cpu", action="store_true", help="CPU time on one thread")
    arguments = parser.parse_args()
    clock = time.perf_counter
    if arguments.cpu:
        arguments.threads, clock = 1, time.process_time
    peak = machine_peak(arguments.threads, "cpu" if arguments.cpu else "wall")
    write = sys.stdout.write
    write(
        f"{arguments.threads} threads; peak {peak.multiply_adds:.0f} GF/s, {peak.reads:.1f} GB/s, "
        f"{peak.tiles:.0f} GF/s of AMX tiles\n"
    )
    header = ["problem", "ours ms", "rate", "of peak", "of AMX peak"]
    header += [f"vs {name}" for name in list(CONTESTANTS)[1:]]
    for section, rows in problems().items():
        if arguments.section not in section:
            continue
        write(f"\n### {section}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}\n")
        for problem in rows:
            times = measure(problem, arguments.threads, arguments.seconds, arguments.turns, clock)
            write(f"| {' | '.join(cells(problem, times, peak))} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
