"""What `qkexport build` costs beside the bare TensorRT calls: time and peak memory.

Each way runs in a process of its own on the same file: a stack of transformer layers in native
form, so that TensorRT is given the same model. The bare way parses, builds and writes the engine;
ours also reads and checks the graph, hashes model and engine, and writes the manifest. What each
way imports is measured apart: a process pays it once. The ways take turns at being first, and each
finds the disk at rest and no older engine: neither pays for what the other left behind.

    python tests/benchmarks/bench_build.py [--layers 28] [--rounds 3]

Wall time counts on an idle machine only; CPU time, in seconds, is the one to read on a shared one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TIME_LIMIT, MEMORY_LIMIT = 1.1, 1.2
WIDTH, HEADS, HIDDEN = 1024, 16, 3072
TARGETS = ("sm_89", "sm_120")
SHAPES = ((1, 1), (1, 128), (8, 1024))


def save_model(path: Path, layers: int) -> None:
    """Layers of the size of Qwen3-0.6B's, float16, weights drawn at random."""
    import numpy as np
    import onnx_ir as ir

    from qkexport.export import to_form
    from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, AttentionSpec

    half = ir.TensorType(ir.DataType.FLOAT16)
    x = ir.Value(name="x", type=half, shape=ir.Shape(["batch", "seq", WIDTH]))
    spec = AttentionSpec(num_heads=HEADS, num_kv_heads=HEADS, scale=0.125, causal="upper_left")
    attributes = spec.to_attributes()
    random = np.random.default_rng(59)
    nodes: list[Any] = []
    weights: list[Any] = []

    def weight(*shape: int) -> Any:
        values = (random.standard_normal(shape, np.float32) * 0.02).astype(np.float16)
        value = ir.Value(name=f"w{len(weights)}", type=half, shape=ir.Shape(shape))
        value.const_value = ir.tensor(values, name=value.name)
        weights.append(value)
        return value

    def add(operator: str, *inputs: Any, **options: int) -> Any:
        nodes.append(ir.node(operator, list(inputs), options))
        value = nodes[-1].outputs[0]
        value.name, value.type = f"v{len(nodes)}", half
        return value

    hidden = x
    for _ in range(layers):
        projections = [add("MatMul", hidden, weight(WIDTH, WIDTH)) for _ in range(3)]
        for value in projections:
            value.shape = x.shape
        inputs = [*projections, weight(WIDTH // HEADS), weight(WIDTH // HEADS)]
        node = ir.Node(OP_DOMAIN, OP_TYPE, inputs, ir.convenience.convert_attributes(attributes))
        nodes.append(node)
        node.outputs[0].name, node.outputs[0].type = f"v{len(nodes)}", half
        mixed = add("Add", hidden, add("MatMul", node.outputs[0], weight(WIDTH, WIDTH)))
        up = add("Relu", add("MatMul", mixed, weight(WIDTH, HIDDEN)))
        hidden = add("Add", mixed, add("MatMul", up, weight(HIDDEN, WIDTH)))
    hidden.name, hidden.shape = "y", x.shape
    imports = {"": 24, OP_DOMAIN: OP_VERSION}
    graph = ir.Graph([x], [hidden], nodes=nodes, initializers=weights, opset_imports=imports)
    graph.name = "main"
    model = to_form(ir.Model(graph, ir_version=10), "native", runtime="tensorrt")
    ir.save(model, path)


def build_bare(model: Path, engine: Path) -> dict[str, float]:
    import tensorrt_rtx as trt

    start = time.perf_counter()
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, logger).parse_from_file(str(model))
    config = builder.create_builder_config()
    config.num_compute_capabilities = len(TARGETS)
    for index, target in enumerate(TARGETS):
        name = target.replace("sm_", "SM")
        config.set_compute_capability(getattr(trt.ComputeCapability, name), index)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", *((*shape, WIDTH) for shape in SHAPES))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    built = time.perf_counter()
    engine.write_bytes(plan)
    return {"build": built - start, "write": time.perf_counter() - built}


def build_ours(model: Path, engine: Path) -> dict[str, float]:
    import qkexport
    from qkexport.engine import ShapeRange

    shapes = ShapeRange(*((*shape, WIDTH) for shape in SHAPES))
    options = qkexport.BuildOptions(targets=TARGETS, profiles=({"x": shapes},))
    result = qkexport.build(model, engine, runtime="tensorrt-rtx", options=options)
    assert result
    return dict(result.seconds)


IMPORTS = {
    "bare": ("tensorrt_rtx",),
    "qkexport": ("tensorrt_rtx", "qkexport", "qkexport.engine", "onnx_ir.convenience"),
}
WAYS = {"bare": build_bare, "qkexport": build_ours}


def measure_pair(place: int, model: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """One run of each way, by turns in this order and the other."""
    ways = list(WAYS) if place % 2 == 0 else list(reversed(WAYS))
    found = {way: measure(way, model, folder / f"{way}.engine") for way in ways}
    return {way: found[way] for way in WAYS}


def measure(way: str, model: Path, engine: Path) -> dict[str, Any]:
    """Runs one way in a process of its own; times leave out Python's own start."""
    engine.unlink(missing_ok=True)
    os.sync()
    command = [sys.executable, __file__, "--way", way, "--model", str(model)]
    done = subprocess.run(
        [*command, "--engine", str(engine)], capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run_one(way: str, model: Path, engine: Path) -> None:
    begin = time.perf_counter()
    for name in IMPORTS[way]:
        importlib.import_module(name)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    stages = {"(import)": start - begin} | WAYS[way](model, engine)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    gigabytes = used.ru_maxrss / 1e6
    found = {"seconds": seconds, "CPU": cpu, "gigabytes": gigabytes, "stages": stages}
    print(json.dumps(found))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--engine", type=Path)
    options = parser.parse_args()
    if options.way:
        run_one(options.way, options.model, options.engine)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        save_model(model, options.layers)
        print(f"{options.layers} layers, {model.stat().st_size / 1e6:.0f} MB, {', '.join(TARGETS)}")
        rounds = [measure_pair(place, model, Path(folder)) for place in range(options.rounds)]
    return report(rounds)


def report(rounds: list[dict[str, dict[str, Any]]]) -> int:
    missed = 0
    for way in WAYS:
        for each in rounds:
            stages = ", ".join(f"{name} {s:.2f}" for name, s in each[way]["stages"].items())
            print(f"{way:10} {each[way]['seconds']:6.2f} s: {stages}")
    for quantity, limit in (
        ("seconds", TIME_LIMIT),
        ("CPU", TIME_LIMIT),
        ("gigabytes", MEMORY_LIMIT),
    ):
        medians = {way: statistics.median(each[way][quantity] for each in rounds) for way in WAYS}
        ratio = statistics.median(
            each["qkexport"][quantity] / each["bare"][quantity] for each in rounds
        )
        verdict = "within" if ratio <= limit else "ABOVE"
        missed += ratio > limit and quantity != "CPU"
        print(
            f"{quantity:10} bare {medians['bare']:6.2f}  qkexport {medians['qkexport']:6.2f}  "
            f"ratio {ratio:.3f}, {verdict} {limit}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
