"""What a parity run costs beside the forward passes that it makes: time and peak memory.

A random-weight model of the shape of Qwen3-0.6B is converted, then compared with itself in ONNX
Runtime, in a process of its own. Needs transformers and, at full size, about 10 GB of memory and 5
of disk. With fewer layers the vocabulary shrinks with them: a slice of the model, with as much work
for each logit as in the whole.

    python tests/benchmarks/bench_parity.py [--layers 28] [--length 64] [--backends ort-stock,ort]

Forward passes are PyTorch's, each candidate's and the oracle's. Loading is what any run of the
model pays: torch.export of the reference and a session for each candidate. On a shared machine
--cpu counts CPU time instead of wall time; with --threads 1, since waiting threads spin.
"""

from __future__ import annotations

import argparse
import json
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


def build(layers: int) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY * layers // LAYERS,
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
    return {
        "verdicts": [str(candidate.verdict) for candidate in result.candidates],
        "cases": len(result.candidates[0].cases),
        "seconds": {**result.seconds, "total": total},
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


def report(found: dict[str, Any]) -> None:
    """Prints seconds by stage, the ratio to the forward passes, and memory beside its limit."""
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
        f"({found['before']:.2f} once the model was built); "
        f"oracle weights and one candidate: {limit:.2f} GiB"
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
        shared = ["--layers", str(options.layers), "--length", str(options.length)]
        path = options.candidate
        if path is None:
            _python(*shared, "--write", folder)
            path = Path(folder) / "model.onnx"
        if options.cpu:
            shared.append("--cpu")
        shared += ["--threads", str(options.threads)]
        text = _python(*shared, "--child", "--candidate", str(path), "--backends", options.backends)
        report(json.loads(text.splitlines()[-1]))


def _python(*arguments: str) -> str:
    """This script in a process of its own, so that memory is counted apart."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
