"""What conversion costs beside torch.onnx.export alone: time and peak memory, verification apart.

Each way runs in a process of its own, one after the other, on the same random-weight model of the
shape of Qwen3-0.6B. Needs transformers and, at full size, about 12 GB of memory and of disk.

    python tests/benchmarks/bench_convert.py [--layers 28] [--rounds 1] [--ways exporter,convert]

Wall time counts on an idle machine only; CPU time is the one to read on a shared one.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

OPSET = 24
WAYS = ("exporter", "convert", "convert and verify")
MEMORY_LIMIT, TIME_LIMIT = 1.25, 1.1


def build(layers: int) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        use_cache=False,
    )
    module: nn.Module = Qwen3ForCausalLM(config)
    return module.eval()


def run_exporter(module: nn.Module, path: Path) -> dict[str, float]:
    ids = torch.zeros(2, 16, dtype=torch.int64)
    start = time.perf_counter()
    torch.onnx.export(
        module,
        (),
        path,
        kwargs={"input_ids": ids},
        dynamic_shapes={"input_ids": {0: "batch", 1: "seq"}},
        dynamo=True,
        opset_version=OPSET,
        verbose=False,
    )
    return {"total": time.perf_counter() - start}


def run_convert(module: nn.Module, path: Path, *, verify: bool) -> dict[str, float]:
    from qkexport.conversion import convert
    from qkexport.input_options import DynamicDim, InputSpec

    start = time.perf_counter()
    result = convert(
        module,
        path,
        inputs={"input_ids": InputSpec("input_ids", (2, 16), "int64")},
        dynamic=[DynamicDim("input_ids", 0, "batch"), DynamicDim("input_ids", 1, "seq")],
        opset=OPSET,
        require_fused="all",
        verify=verify,
    )
    if not result:
        raise SystemExit(json.dumps(result.to_dict(), indent=1))
    return {"total": time.perf_counter() - start, **result.seconds}


def child(way: str, layers: int) -> None:
    """Runs one way and prints its seconds and its peak memory."""
    torch.set_num_threads(2)
    module = build(layers)
    built = resource.getrusage(resource.RUSAGE_SELF)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if way == "exporter":
            seconds = run_exporter(module, path)
        else:
            seconds = run_convert(module, path, verify=way != "convert")
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds["cpu"] = used.ru_utime + used.ru_stime - built.ru_utime - built.ru_stime
    sys.stdout.write(json.dumps({"seconds": seconds, "peak": used.ru_maxrss}) + "\n")


def measure(way: str, layers: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--way", way, "--layers", str(layers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--way", choices=WAYS)
    options = parser.parse_args()
    if options.way:
        child(options.way, options.layers)
        return
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways.split(",")}
    for _ in range(options.rounds):  # ways by turns: what else the machine does hits all alike
        for way, results in runs.items():
            results.append(measure(way, options.layers))
    report(runs)


def report(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Prints medians, ratios to the first way, and the seconds of each stage."""
    print(f"{'way':20}" + "".join(f"{n:>9} ratio" for n in ("seconds", "CPU", "peak GB")))
    base: list[float] | None = None
    for way, results in runs.items():
        numbers = [
            statistics.median(result["seconds"]["total"] for result in results),
            statistics.median(result["seconds"]["cpu"] for result in results),
            statistics.median(result["peak"] for result in results) / 2**20,
        ]
        base = base or numbers
        pairs = zip(numbers, base, strict=True)
        print(f"{way:20}" + "".join(f"{n:9.2f} {n / first:5.2f}" for n, first in pairs))
        stages = [f"{k} {v:.1f} s" for k, v in results[-1]["seconds"].items() if k in _STAGES]
        if stages:
            print("   ", ", ".join(stages))
    print(f"limits for convert: {TIME_LIMIT} x time, {MEMORY_LIMIT} x memory")


_STAGES = ("load", "trace", "match", "save", "verify")

if __name__ == "__main__":
    main()
