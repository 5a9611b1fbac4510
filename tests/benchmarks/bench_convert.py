"""What conversion costs beside torch.onnx.export alone: time and peak memory, verification apart.

Each way runs in a process of its own, one after the other, on the same random-weight model of the
shape of a Qwen3. Needs transformers; the largest takes 5 GB of memory and of disk, its verification
15 GB.

    python tests/benchmarks/bench_convert.py [--model 0.6b] [--dtype float32] [--layers 28]
        [--rounds 1] [--ways exporter,convert]

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
WAYS = ("exporter", "convert", "convert folder", "convert and verify")
MEMORY_LIMIT, TIME_LIMIT = 1.25, 1.1
WIDTHS = {"0.6b": (1024, 3072), "1.7b": (2048, 6144)}  # hidden, intermediate


def build(model: str, dtype: str, layers: int) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))  # no wider copy, ever
    hidden_size, intermediate_size = WIDTHS[model]
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        use_cache=False,
    )
    module = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
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


def run_folder(folder: Path, path: Path) -> dict[str, float]:
    """As `run_convert`, from safetensors on the disk; reading them is part of it."""
    from qkexport.conversion import convert

    start = time.perf_counter()
    result = convert(folder, path, opset=OPSET, require_fused="all", verify=False)
    if not result:
        raise SystemExit(json.dumps(result.to_dict(), indent=1))
    return {"total": time.perf_counter() - start, **result.seconds}


def child(way: str, folder: Path, *shape: Any) -> None:
    """Runs one way and prints its seconds and its peak memory."""
    torch.set_num_threads(2)
    if way == "save":
        build(*shape).save_pretrained(folder)
        return
    module = nn.Module() if way == "convert folder" else build(*shape)
    built = resource.getrusage(resource.RUSAGE_SELF)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.onnx"
        if way == "exporter":
            seconds = run_exporter(module, path)
        elif way == "convert folder":
            seconds = run_folder(folder, path)
        else:
            seconds = run_convert(module, path, verify=way != "convert")
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds["cpu"] = used.ru_utime + used.ru_stime - built.ru_utime - built.ru_stime
    sys.stdout.write(json.dumps({"seconds": seconds, "peak": used.ru_maxrss}) + "\n")


def command_of(way: str, folder: Path, model: str, dtype: str, layers: int) -> list[str]:
    command = [sys.executable, __file__, "--way", way, "--model", model, "--dtype", dtype]
    return [*command, "--layers", str(layers), "--folder", str(folder)]


def measure(way: str, folder: Path, *shape: Any) -> dict[str, Any]:
    command = command_of(way, folder, *shape)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=WIDTHS, default="0.6b")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--way", choices=(*WAYS, "save"))
    parser.add_argument("--folder", type=Path, default=Path())
    options = parser.parse_args()
    shape = (options.model, options.dtype, options.layers)
    if options.way:
        child(options.way, options.folder, *shape)
        return
    print(f"Qwen3-{options.model} of {options.layers} layers in {options.dtype}")
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways.split(",")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run(command_of("save", folder, *shape), check=True)
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        for _ in range(options.rounds):  # by turns: what else the machine does hits all alike
            for way, results in runs.items():
                results.append(measure(way, folder, *shape))
    report(runs, weights)


def report(runs: dict[str, list[dict[str, Any]]], weights: int) -> None:
    """Prints medians, ratios to the first way, and the seconds of each stage."""
    columns = "".join(f"{name:>9} ratio" for name in ("seconds", "CPU", "peak GiB"))
    print(f"{'way':20}{columns}  of weights")
    base: list[float] | None = None
    for way, results in runs.items():
        numbers = [
            statistics.median(result["seconds"]["total"] for result in results),
            statistics.median(result["seconds"]["cpu"] for result in results),
            statistics.median(result["peak"] for result in results) / 2**20,
        ]
        base = base or numbers
        pairs = zip(numbers, base, strict=True)
        line = "".join(f"{n:9.2f} {n / first:5.2f}" for n, first in pairs)
        print(f"{way:20}{line}{numbers[2] * 2**30 / weights:12.2f}")
        stages = [f"{k} {v:.1f} s" for k, v in results[-1]["seconds"].items() if k in _STAGES]
        if stages:
            print("   ", ", ".join(stages))
    print(f"limits for convert: {TIME_LIMIT} x time, {MEMORY_LIMIT} x memory")


_STAGES = ("load", "trace", "match", "save", "verify")

if __name__ == "__main__":
    main()
