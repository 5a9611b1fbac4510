"""Triton Python backend: serves engines of TensorRT-RTX, the one that fits the GPU.

Needs qkexport[rtx] and cuda-python in the environment of the Python backend.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack

from qkexport.engine.device import find_gpu
from qkexport.engine.targets import runs_on
from qkexport.manifest import manifest_path, read_manifest
from qkexport.run.tensorrt import TrtRunner


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the engine that was built for the GPU here."""
        folder = Path(args["model_repository"]) / args["model_version"]
        self.runner = TrtRunner(_engine_for_this_gpu(folder))
        self.batched = json.loads(args["model_config"])["max_batch_size"] > 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Runs gathered requests together; Triton gathers those of equal shapes."""
        inputs = [self._inputs(request) for request in requests]
        if not self.batched or len(requests) == 1:
            return [_response(self.runner.run(each)) for each in inputs]
        sizes = [next(iter(each.values())).shape[0] for each in inputs]
        names = [info.name for info in self.runner.inputs]
        together = self.runner.run({name: torch.cat([x[name] for x in inputs]) for name in names})
        parts = {name: torch.split(tensor, sizes) for name, tensor in together.items()}
        return [
            _response({name: part[place] for name, part in parts.items()})
            for place in range(len(requests))
        ]

    def finalize(self) -> None:
        """Frees the engine."""
        self.runner.close()

    def _inputs(self, request: Any) -> dict[str, torch.Tensor]:
        return {
            info.name: from_dlpack(
                pb_utils.get_input_tensor_by_name(request, info.name).to_dlpack()
            )
            for info in self.runner.inputs
        }


def _engine_for_this_gpu(folder: Path) -> Path:
    gpu = find_gpu()
    engines = sorted(folder.glob("*.engine"))
    for engine in engines:
        if gpu is not None and runs_on(gpu.target, read_manifest(manifest_path(engine)).targets):
            return engine
    return engines[0]  # the runner says why it does not fit


def _response(outputs: dict[str, torch.Tensor]) -> Any:
    tensors = [
        pb_utils.Tensor.from_dlpack(name, tensor.contiguous().__dlpack__())
        for name, tensor in outputs.items()
    ]
    return pb_utils.InferenceResponse(output_tensors=tensors)
