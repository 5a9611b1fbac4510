"""Builds engines with TensorRT-RTX in a process of its own, which a fault of it may end.

Run as a script: reads one JSON line for each model, `[path, {input: shape}]`, and answers each with
one, as long as it lives.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class EngineBuild:
    """What came of one model.

    Attributes:
        digest: Hash of the engine; empty when there is none.
        messages: Parser errors and the builder's warnings.
    """

    digest: str
    messages: tuple[str, ...]


def build_engines(
    models: Sequence[tuple[Path, Mapping[str, Sequence[int]]]], timeout: float = 300
) -> list[EngineBuild]:
    """Builds every model; a model that ends the process counts as not built, as do later ones.

    Args:
        models: Path of each, and the shapes of its inputs for the optimization profile.
        timeout: Seconds for all of them.
    """
    lines = [json.dumps([str(path), {k: list(v) for k, v in s.items()}]) for path, s in models]
    done = subprocess.run(
        [sys.executable, __file__],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    builds = [EngineBuild(**json.loads(line)) for line in done.stdout.splitlines()]
    ended = EngineBuild("", (f"process ended with {done.returncode}: {done.stderr[-500:]}",))
    return [*builds, *[ended] * (len(models) - len(builds))]


def _main() -> None:
    for line in sys.stdin.read().splitlines():
        build = _build(*json.loads(line))
        sys.stdout.write(json.dumps(dataclasses.asdict(build)) + "\n")
        sys.stdout.flush()


def _build(path: str, shapes: Mapping[str, list[int]]) -> EngineBuild:
    import tensorrt_rtx as trt

    messages: list[str] = []

    class Logger(trt.ILogger):  # type: ignore[misc]
        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.Severity.WARNING:
                messages.append(message)

    logger = Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        errors = [parser.get_error(i).desc() for i in range(parser.num_errors)]
        return EngineBuild("", (*messages, *errors))
    config = builder.create_builder_config()
    config.add_optimization_profile(_profile(builder, network, shapes))
    engine = builder.build_serialized_network(network, config)
    digest = "" if engine is None else hashlib.sha256(memoryview(engine)).hexdigest()
    return EngineBuild(digest, tuple(messages))


def _profile(builder: Any, network: Any, shapes: Mapping[str, list[int]]) -> Any:
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if -1 in tuple(tensor.shape):
            profile.set_shape(tensor.name, *[shapes[tensor.name]] * 3)
    return profile


if __name__ == "__main__":
    _main()
