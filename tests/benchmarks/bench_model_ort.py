"""Prefill of a whole model in ONNX Runtime: fused, the same file without our library, plain export.

A random-weight model of the shape of Qwen3-0.6B, with fewer layers by default: every layer costs
the same, so a ratio hardly depends on how many there are. Logits are those of the last token. The
contestants take turns; printed are medians, and the median of the ratios of one turn, as soon as a
length is done; an interrupt ends a length early, after its last whole turn. On a shared machine
--cpu counts CPU time on one thread instead of wall time.

    python tests/benchmarks/bench_model_ort.py [--layers 4] [--lengths 512,4096] [--seconds 30]
    python tests/benchmarks/bench_model_ort.py --layers 28 --folder F --lengths ''    converts only
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

from qkexport.conversion import convert
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.native import register_ort


class Prefill(nn.Module):
    """`[1,S]` tokens to the logits of the last one."""

    def __init__(self, layers: int) -> None:
        from transformers import Qwen3Config, Qwen3ForCausalLM

        super().__init__()
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
        self.model = Qwen3ForCausalLM(config)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids, logits_to_keep=1).logits
        return logits


def write_converted(module: nn.Module, path: Path) -> None:
    """The converted model, which both fused and stock run."""
    spec = InputSpec("input_ids", (1, 512), "int64")
    axes = [DynamicDim("input_ids", 1, "seq")]
    inputs = {spec.name: spec}
    assert convert(module, path, inputs=inputs, dynamic=axes, require_fused="all", verify=False)


def write_plain(module: nn.Module, path: Path) -> None:
    """The plain export of the same module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.zeros(1, 512, dtype=torch.int64),),
            str(path),
            input_names=["input_ids"],
            dynamo=True,
            opset_version=24,
            dynamic_shapes=({1: torch.export.Dim("seq", max=40960)},),
            external_data=True,
            verbose=False,
        )


def write_models(folder: Path, layers: int, *, plain: bool) -> tuple[Path, Path | None]:
    """Converted model and plain export, written where the folder does not hold them."""
    paths = folder / "converted.onnx", folder / "plain.onnx"
    writers = (write_converted, write_plain) if plain else (write_converted,)
    missing = [(w, path) for w, path in zip(writers, paths, strict=False) if not path.exists()]
    module = Prefill(layers).eval() if missing else None
    for writer, path in missing:
        assert module is not None
        writer(module, path)
    return paths[0], paths[1] if plain else None


def open_session(path: Path, threads: int, *, fused: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that spin after one contestant's turn would steal the next one's cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if fused:
        register_ort(options)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measure(
    runs: Mapping[str, Callable[[], object]], options: argparse.Namespace
) -> list[dict[str, float]]:
    """Times of every contestant, turn by turn."""
    clock = time.process_time if options.cpu else time.perf_counter
    for run in () if options.cold else runs.values():
        run()
    turns: list[dict[str, float]] = []
    deadline = time.perf_counter() + options.seconds
    try:
        while time.perf_counter() < deadline or len(turns) < options.turns:
            turn = {}
            for name, run in runs.items():
                start = clock()
                run()
                turn[name] = clock() - start
            turns.append(turn)
    except KeyboardInterrupt:
        if not turns:
            raise
    return turns


def row(length: int, turns: Sequence[Mapping[str, float]]) -> str:
    """One line of the table; a contestant that did not take part is a dash."""
    own = statistics.median(turn["fused"] for turn in turns)
    cells = [f"{length}", f"{own * 1e3:.0f}"]
    for name in ("stock", "plain"):
        ratios = [turn[name] / turn["fused"] for turn in turns if name in turn]
        cells.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
    return f"| {' | '.join([*cells, str(len(turns))])} |\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--lengths", default="512,4096")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for each length")
    parser.add_argument("--turns", type=int, default=3, help="turns at least")
    parser.add_argument("--cold", action="store_true", help="no run before the first turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, help="keeps the models there, or finds them there")
    parser.add_argument("--without-plain", action="store_true", help="no plain export")
    parser.add_argument("--cpu", action="store_true", help="CPU time on one thread")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.cpu:
        options.threads = 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        converted, plain = write_models(folder, options.layers, plain=not options.without_plain)
        if not options.lengths:
            return
        sessions = {
            "fused": open_session(converted, options.threads, fused=True),
            "stock": open_session(converted, options.threads, fused=False),
        }
        if plain is not None:
            sessions["plain"] = open_session(plain, options.threads, fused=False)
        write = sys.stdout.write
        write(f"{options.layers} layers, {options.threads} threads\n")
        write("| tokens | fused ms | vs stock | vs plain export | turns |\n|---|---|---|---|---|\n")
        for length in map(int, options.lengths.split(",")):
            tokens = np.random.default_rng(0).integers(0, 151936, (1, length))
            runs = {
                name: functools.partial(session.run, None, {"input_ids": tokens})
                for name, session in sessions.items()
            }
            write(row(length, measure(runs, options)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
