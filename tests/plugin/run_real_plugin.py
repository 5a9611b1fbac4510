"""Runs the plugin that nvcc built over the feature grid; a program, prints JSON.

Usage: run_real_plugin.py PLUGIN CUDART
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from qkexport.reference import reference_attention
from qkexport.run.plugin_attention import PluginRunner
from qkexport.run.plugin_host import PluginInput
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES
from qkexport.spec import AttentionSpec, Causal, KvCache

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from attention_cases import AttentionCase
from attention_grid import pairwise_cases

from plugin.cudart import Cudart

ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-21}
ROUNDINGS = 8  # of queries, keys, weights and output; scores multiply the first two


@dataclasses.dataclass(frozen=True)
class Row:
    """One attention to run.

    Attributes:
        label: Names it in a report.
        case: Spec and inputs.
        outputs: Names of the outputs that are asked for.
        in_place: Presents share the memory of the past.
    """

    label: str
    case: AttentionCase
    outputs: tuple[str, ...]
    in_place: bool = False


def rows() -> Iterator[Row]:
    """The pairwise grid, and what it is too small for: splits, score bounds, empty tensors."""
    for grid in pairwise_cases():
        yield Row(grid.label, grid.case, OUTPUT_NAMES if grid.presents else OUTPUT_NAMES[:1])
    for dtype in ROUNDOFF:
        yield Row(f"decode {dtype}", _cached(1, 700, dtype), OUTPUT_NAMES)
        yield Row(f"prefill {dtype}", _cached(97, 0, dtype), OUTPUT_NAMES[:1])
        yield Row(f"in place {dtype}", _static(3, 60, dtype), OUTPUT_NAMES, in_place=True)
        yield Row(f"no queries {dtype}", _cached(0, 0, dtype), OUTPUT_NAMES[:1])


def _cached(
    seqlen: int, past: int, dtype: torch.dtype, kv_cache: KvCache = KvCache.CONCAT
) -> AttentionCase:
    spec = AttentionSpec(
        num_heads=4, num_kv_heads=2, scale=0.25, causal=Causal.LOWER_RIGHT, kv_cache=kv_cache
    )
    shapes = {
        "query": (2, 4, seqlen, 64),
        "key": (2, 2, seqlen, 64),
        "value": (2, 2, seqlen, 64),
        "q_norm_weight": (64,),
        "k_norm_weight": (64,),
    }
    if past:
        shapes |= {"past_key": (2, 2, past, 64), "past_value": (2, 2, past, 64)}
    return AttentionCase(spec, {name: torch.randn(x).to(dtype) for name, x in shapes.items()})


def _static(seqlen: int, rows: int, dtype: torch.dtype) -> AttentionCase:
    case = _cached(seqlen, rows, dtype, kv_cache=KvCache.STATIC)
    case.inputs["kv_lengths"] = torch.tensor([rows, 9])
    return case


def run(row: Row, plugin: Path, cudart: Cudart, stream: int) -> dict[str, torch.Tensor]:
    """The outputs of the plugin on the device."""
    dtypes = {name: str(x.dtype).removeprefix("torch.") for name, x in row.case.inputs.items()}
    described = {
        name: PluginInput.fixed(dtypes[name], x.shape) for name, x in row.case.inputs.items()
    }
    runner = PluginRunner(row.case.spec, described, row.outputs, library=plugin)
    tensors = [row.case.inputs[name].contiguous() for name in INPUT_NAMES if name in described]
    context = runner.engine.attach()
    shapes = context.set_shapes([tensor.shape for tensor in tensors])
    dtype = row.case.inputs["query"].dtype
    results = [torch.full(shape, torch.nan, dtype=dtype) for shape in shapes]
    inputs = [cudart.upload(tensor) for tensor in tensors]
    outputs = [cudart.upload(result) for result in results]
    for index, source in enumerate(runner.engine.aliased_inputs):
        if row.in_place and source >= 0:
            outputs[index] = inputs[source]
    workspace = cudart.allocate(runner.engine.workspace_size)
    context.enqueue(inputs, outputs, workspace, stream)
    cudart.synchronize()
    for address, result in zip(outputs, results, strict=True):
        cudart.download(address, result)
    return dict(zip(row.outputs, results, strict=True))


def excess(row: Row, got: dict[str, torch.Tensor]) -> float:
    """The largest error, in units of what is allowed; infinite where a result is NaN."""
    exact = reference_attention(row.case.spec, row.case.inputs, outputs=row.outputs)
    largest = 0.0
    for name, expected in exact.items():
        if not expected.numel():
            continue
        if got[name].isnan().any():
            return float("inf")
        allowed = ROUNDINGS * ROUNDOFF[got[name].dtype] * max(float(expected.abs().max()), 1.0)
        largest = max(largest, float((got[name].double() - expected).abs().max()) / allowed)
    return largest


def main(plugin: str, cudart_path: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {}
    with Cudart(cudart_path) as cudart:
        stream = cudart.stream()
        for row in rows():
            found[row.label] = excess(row, run(row, Path(plugin), cudart, stream))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
