"""What a parity run costs beside the forward passes that it makes: time and peak memory.

A random-weight model of the shape of Qwen3-0.6B is converted, then compared with itself in ONNX
Runtime, in a process of its own. Needs transformers and, at full size, about 10 GB of memory and 5
of disk. With fewer layers the vocabulary shrinks with them: a slice of the model, with as much work
for each logit as in the whole.

    python tests/benchmarks/bench_parity.py [--layers 28] [--length 64] [--backends ort-stock,ort]

Memory that a run takes beside the model is that of libraries, traces and caches: it is measured as
the peak of the same run of a model of next to no weights, and taken off.

Forward passes are PyTorch's, each candidate's and the oracle's. Loading is what any run of the
model pays: torch.export of the reference and a session for each candidate. On a shared machine
--cpu counts CPU time instead of wall time; with --threads 1, since waiting threads spin.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

TIME_LIMIT = 1.3
FORWARD_PASSES = ("pytorch", "candidates", "oracle", "noise")


LAYERS, VOCABULARY = 28, 151936
TINY: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def shape(layers: int) -> dict[str, Any]:
    """Sizes of a slice of Qwen3-0.6B; of next to nothing without layers."""
    if not layers:
        return TINY
    return {
        "vocab_size": VOCABULARY * layers // LAYERS,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }


def build(layers: int) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(**shape(layers), tie_word_embeddings=True, use_cache=False)
    module: nn.Module = Qwen3ForCausalLM(config)
    return module.eval()


def write_candidate(folder: Path, layers: int, length: int) -> Path:
    """Converts the model, unverified: proving it is what is measured."""
    from qkexport.conversion import convert
    from qkexport.input_options import DynamicDim, InputSpec

    path = folder / "model.onnx"
    axes = [DynamicDim("input_ids", 0, "batch"), DynamicDim("input_ids", 1, "seq")]
    spec = InputSpec("input_ids", (2, length), "int64")
    result = convert(
        build(layers),
        path,
        inputs={spec.name: spec},
        dynamic=axes,
        require_fused="all",
        verify=False,
    )
    assert result
    return path


def run_parity(path: Path, layers: int, length: int, backends: list[str]) -> dict[str, Any]:
    """One run; seconds by stage and the peak of this process in GiB, before and after."""
    from qkexport.input_options import InputSpec
    from qkexport.proof.parity import parity

    module = build(layers)
    before, anonymous = _peak(), AnonymousMemory()
    anonymous.start()
    spec = InputSpec("input_ids", (2, length), "int64")
    start = time.perf_counter()
    result = parity(module, [path], backends=backends, inputs={spec.name: spec})
    total = time.perf_counter() - start
    positions = max(math.prod(case.shapes["input_ids"]) for case in result.candidates[0].cases)
    # a case's logits: the oracle's in float64, PyTorch's and the candidate's in float32
    outputs = positions * shape(layers)["vocab_size"] * (8 + 4 + 4) / 2**30
    return {
        "verdicts": [str(candidate.verdict) for candidate in result.candidates],
        "cases": len(result.candidates[0].cases),
        "seconds": {**result.seconds, "total": total},
        "outputs": outputs,
        "weights": weights_in_gib(module),
        "before": before,
        "peak": _peak(),
        "anonymous": anonymous.peak,
    }


def weights_in_gib(module: nn.Module) -> float:
    """Size of the weights in float32, those that are tied counted once."""
    return sum(weight.numel() for weight in module.parameters()) * 4 / 2**30


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class AnonymousMemory(threading.Thread):
    """Watches what the process holds itself, mapped files apart: those can be dropped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0

    def run(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(line.split()[1] for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, int(kilobytes) / 2**20)
            time.sleep(0.02)


def report(found: dict[str, Any], fixed: float) -> None:
    """Prints seconds by stage, the ratio to the forward passes, and memory beside its limit.

    Args:
        found: What `run_parity` returned.
        fixed: Peak in GiB of the same run of a tiny model.
    """
    seconds = found["seconds"]
    print(f"{found['cases']} cases, candidates {', '.join(found['verdicts'])}")
    for name, value in seconds.items():
        print(f"{name:16}{value:9.2f} s")
    passes = sum(seconds.get(name, 0.0) for name in FORWARD_PASSES)
    run = seconds["total"] - seconds["loading"]
    print(f"run / forward passes: {run / passes:.3f} (limit {TIME_LIMIT})")
    oracle = seconds["oracle"] + seconds.get("noise", 0.0)
    print(f"the same, the oracle left out of both: {(run - oracle) / (passes - oracle):.3f}")
    limit = found["weights"] * 3  # float64 takes two float32 weights, a candidate one
    print(
        f"peak {found['anonymous']:.2f} GiB, {found['peak']:.2f} with mapped files "
        f"({found['before']:.2f} once the model was built); a tiny model's peak {fixed:.2f} GiB"
    )
    print(
        f"peak for the model {found['anonymous'] - fixed:.2f} GiB, outputs of the largest case "
        f"{found['outputs']:.2f} of it; oracle weights and one candidate: {limit:.2f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--backends", default="ort-stock,ort")
    parser.add_argument("--candidate", type=Path, help="A file that --write left; none: convert.")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path, help="Only convert, into this folder.")
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.write:
        write_candidate(options.write, options.layers, options.length)
        return
    if options.child:
        if options.cpu:
            time.perf_counter = time.process_time
        torch.set_num_threads(options.threads)
        answer = run_parity(
            options.candidate, options.layers, options.length, options.backends.split(",")
        )
        print(json.dumps(answer))
        return
    with tempfile.TemporaryDirectory() as folder:
        fixed = _measured(options, 0, Path(folder), None)
        report(
            _measured(options, options.layers, Path(folder), options.candidate), fixed["anonymous"]
        )


def _measured(
    options: argparse.Namespace, layers: int, folder: Path, path: Path | None
) -> dict[str, Any]:
    """What `run_parity` returns in a process of its own, on a file or on one that is converted."""
    shared = ["--layers", str(layers), "--length", str(options.length)]
    if path is None:
        path = folder / "model.onnx"
        _python(*shared, "--write", str(folder))
    if options.cpu:
        shared.append("--cpu")
    shared += ["--threads", str(options.threads), "--backends", options.backends]
    text = _python(*shared, "--child", "--candidate", str(path))
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def _python(*arguments: str) -> str:
    """This script in a process of its own, so that memory is counted apart."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
