"""A portable model without our library beside the plain export it came from, in ONNX Runtime.

Both run on the same inputs, turn by turn, on one thread; printed are medians and their ratio.

    python tests/benchmarks/bench_portable_body.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping

import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import nn

from qkexport.export import to_form
from qkexport.match import find_attention
from qkexport.rewrite import fuse_attention

OPSETS = (20, 23, 24, 25)
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 16, 8, 128


class Decoder(nn.Module):
    """Qwen3's attention between its projections; with a past, one token is decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm = nn.RMSNorm(HEAD_DIM, eps=1e-6)
        self.k_norm = nn.RMSNorm(HEAD_DIM, eps=1e-6)
        for norm in (self.q_norm, self.k_norm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        past_key: torch.Tensor | None = None,
        past_value: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        q = _rotated(_heads(query, NUM_HEADS, self.q_norm), cos, sin)
        k = _rotated(_heads(key, NUM_KV_HEADS, self.k_norm), cos, sin)
        v = _heads(value, NUM_KV_HEADS, nn.Identity())
        decodes = past_key is not None and past_value is not None
        if past_key is not None and past_value is not None:
            k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
        output = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=not decodes, enable_gqa=True
        )
        output = output.transpose(1, 2).flatten(2)
        return (output, k, v) if decodes else (output,)


def _heads(x: torch.Tensor, num_heads: int, norm: nn.Module) -> torch.Tensor:
    normed: torch.Tensor = norm(x.reshape(*x.shape[:2], num_heads, HEAD_DIM))
    return normed.transpose(1, 2)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


class Vision(nn.Module):
    """A vision transformer's attention with LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = nn.LayerNorm(64), nn.LayerNorm(64)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.reshape(8, 197, 12, 64).transpose(1, 2) for x in (query, key, value))
        output = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return output.transpose(1, 2).flatten(2)


def _decoder(
    seqlen: int, past: int, dtype: torch.dtype
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    widths = (NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM)
    projections = [torch.randn(1, seqlen, width) for width in widths]
    angles = torch.randn(1, seqlen, HEAD_DIM // 2).repeat(1, 1, 2)
    inputs = [*projections, angles.cos(), angles.sin()]
    if past:
        inputs += [torch.randn(1, NUM_KV_HEADS, past, HEAD_DIM) for _ in range(2)]
    return Decoder().to(dtype).eval(), tuple(x.to(dtype) for x in inputs)


def _vision() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Vision().eval(), tuple(torch.randn(8, 197, 12 * 64) for _ in range(3))


CASES: Mapping[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "prefill of 512": lambda: _decoder(512, 0, torch.float32),
    "prefill of 512, float16": lambda: _decoder(512, 0, torch.float16),
    "token after 2047": lambda: _decoder(1, 2047, torch.float32),
    "ViT, 8 images": _vision,
}


def _plain(module: nn.Module, inputs: tuple[torch.Tensor, ...], opset: int) -> ir.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, inputs, dynamo=True, opset_version=opset, verbose=False)
    assert program is not None
    model: ir.Model = program.model
    return model


def _portable(plain: ir.Model) -> ir.Model:
    model = plain.clone()
    report = find_attention(model)
    if report.fused != 1:
        raise SystemExit(f"expected one fused attention, got {report}")
    fuse_attention(model, report)
    return to_form(model, "portable")


def _session(model: ir.Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    data = ir.to_proto(model).SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _medians(
    sessions: list[ort.InferenceSession], inputs: tuple[torch.Tensor, ...], rounds: int
) -> list[float]:
    """Milliseconds of each session, run in turn."""
    names = [value.name for value in sessions[0].get_inputs()]
    feed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    seconds: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds):
        for session, times in zip(sessions, seconds, strict=True):
            start = time.perf_counter()
            session.run(None, feed)
            times.append(time.perf_counter() - start)
    return [statistics.median(times) * 1e3 for times in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    sys.stdout.write(f"{'case':28}{'opset':>6}{'plain ms':>10}{'portable':>10}{'ratio':>7}\n")
    for name, make in CASES.items():
        for opset in OPSETS:
            torch.manual_seed(0)
            module, inputs = make()
            plain = _plain(module, inputs, opset)
            sessions = [_session(plain), _session(_portable(plain))]
            before, after = _medians(sessions, inputs, rounds)
            numbers = f"{before:>10.2f}{after:>10.2f}{after / before:>7.2f}"
            sys.stdout.write(f"{name:28}{opset:>6}{numbers}\n")


if __name__ == "__main__":
    main()
