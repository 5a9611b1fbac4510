"""Builds models for many GPUs on the machines of a Ray cluster, one engine a task.

    python ray_matrix.py encoder.onnx --target sm_89,sm_120 -o engines

Without a cluster Ray starts one on this machine. Models travel to the tasks and engines back, so
the machines need no common file system, only qkexport[rtx]. Each task builds in a process of its
own: when TensorRT ends it, the task says so and the others go on.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import ray

from qkexport.engine.matrix import build_matrix, matrix_cells
from qkexport.engine.targets import parse_targets, resolve_targets
from qkexport.manifest import manifest_path


@ray.remote(num_cpus=1)
def build_cell(name: str, model: bytes, target: str) -> tuple[str, str | None, dict[str, bytes]]:
    """Builds one engine; returns its name, why there is none, and its files."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / name).write_bytes(model)
        cells = matrix_cells([folder / name], [target], folder)
        (result,) = build_matrix(cells, [], cache=folder / "cache", jobs=1).cells
        engine = result.cell.output
        paths = (engine, manifest_path(engine)) if result.passed else ()
        files = {path.name: path.read_bytes() for path in paths}
    return engine.name, result.error, files


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="all")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    targets = resolve_targets(parse_targets(options.target))
    models = {path.name: ray.put(path.read_bytes()) for path in options.models}
    waiting = [
        build_cell.remote(name, model, target)
        for name, model in models.items()
        for target in targets
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    failed = 0
    while waiting:
        (done,), waiting = ray.wait(waiting, num_returns=1)
        name, error, files = ray.get(done)
        for file_name, data in files.items():
            (options.output / file_name).write_bytes(data)
        failed += error is not None
        print(f"{name}: {error or 'BUILT'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
