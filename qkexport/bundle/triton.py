"""A model in a Triton Inference Server repository: config.pbtxt and what it serves.

Triton's TensorRT backend loads engines of the full TensorRT and picks one by the GPU's compute
capability. It does not load engines of TensorRT-RTX: those are served by its Python backend.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qkexport.engine.bindings import Flavour
from qkexport.errors import UsageError
from qkexport.files import link_or_copy
from qkexport.manifest import Manifest, TensorRecord, manifest_path

_PYTHON_MODEL: Final = Path(__file__).parent / "files" / "triton_model.py"
# Long enough to gather requests that arrive together, short beside one inference.
_QUEUE_DELAY_MICROSECONDS: Final = 200

# Names of Triton's model_config.proto.
_DATA_TYPES: Final[Mapping[str, str]] = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "float32": "TYPE_FP32",
}


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """One model of a repository, with an engine for each group of targets.

    Attributes:
        name: In requests.
        engines: Manifest by engine file; all of one model and runtime.
    """

    name: str
    engines: Mapping[Path, Manifest]

    @property
    def manifest(self) -> Manifest:
        """Of any engine: they differ in their targets alone."""
        return next(iter(self.engines.values()))

    @property
    def max_batch_size(self) -> int:
        """Largest batch that Triton may gather; 0 where requests cannot be put together.

        They can when the first dimension of every input and output varies, and varies alike.
        """
        tensors = (*self.manifest.inputs, *self.manifest.outputs)
        if not self.manifest.profiles or any(_first(tensor) != -1 for tensor in tensors):
            return 0
        profile = self.manifest.profiles[0]
        spans = {tuple(shape[0] for shape in profile[x.name]) for x in self.manifest.inputs}
        return next(iter(spans))[2] if len(spans) == 1 else 0


def _first(tensor: TensorRecord) -> int | None:
    return tensor.shape[0] if tensor.shape else None


def write_triton_model(model: ServedModel, folder: Path) -> None:
    """Writes one model of a repository.

    Args:
        model: What to serve.
        folder: Named after the model.
    """
    version = folder / "1"
    version.mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config_text(model))
    if model.manifest.runtime == Flavour.TENSORRT:
        for engine, name in plan_names(model).items():
            link_or_copy(engine, version / name)
        return
    shutil.copyfile(_PYTHON_MODEL, version / "model.py")
    for engine in model.engines:
        link_or_copy(engine, version / engine.name)
        shutil.copyfile(manifest_path(engine), version / manifest_path(engine).name)


def plan_names(model: ServedModel) -> dict[Path, str]:
    """File name of each engine inside a version folder, for the TensorRT backend."""
    names: dict[Path, str] = {}
    for engine, manifest in model.engines.items():
        name = "model.plan" if len(model.engines) == 1 else f"{'_'.join(manifest.targets)}.plan"
        if name in names.values():
            message = f"Engines of model {model.name} must be for different targets, got {name}."
            raise UsageError(message)
        names[engine] = name
    return names


def config_text(model: ServedModel) -> str:
    """The model's config.pbtxt."""
    manifest, batched = model.manifest, model.max_batch_size
    plans = manifest.runtime == Flavour.TENSORRT
    lines = [f'name: "{model.name}"', 'platform: "tensorrt_plan"' if plans else 'backend: "python"']
    lines.append(f"max_batch_size: {batched}")
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        lines += [_tensor(kind, tensor, batched > 0) for tensor in tensors]
    if plans and len(model.engines) > 1:
        lines += _plans_by_capability(model)
    profiles = "".join(f' profile: "{place}"' for place in range(len(manifest.profiles)))
    lines.append(f"instance_group [ {{ count: 1 kind: KIND_GPU{profiles if plans else ''} }} ]")
    if batched > 0:
        delay = f"max_queue_delay_microseconds: {_QUEUE_DELAY_MICROSECONDS}"
        lines.append(f"dynamic_batching {{ {_preferred(model)}{delay} }}")
    return "\n".join(lines) + "\n"


def _tensor(kind: str, tensor: TensorRecord, batched: bool) -> str:
    dims = ", ".join(map(str, tensor.shape[1:] if batched else tensor.shape))
    # Triton wants at least one dimension: a scalar is one element that is reshaped away.
    shape = f"dims: [ {dims} ]" if dims else "dims: [ 1 ] reshape { shape: [ ] }"
    return (
        f"{kind} [ {{ name: {json.dumps(tensor.name)} data_type: {_data_type(tensor)} {shape} }} ]"
    )


def _data_type(tensor: TensorRecord) -> str:
    if tensor.dtype not in _DATA_TYPES:
        message = f"Tensor {tensor.name} must have a type that Triton serves, got {tensor.dtype}."
        raise UsageError(message, note=f"accepted: {', '.join(_DATA_TYPES)}.")
    return _DATA_TYPES[tensor.dtype]


def _preferred(model: ServedModel) -> str:
    profile = model.manifest.profiles[0]
    best = profile[model.manifest.inputs[0].name][1][0]
    return f"preferred_batch_size: [ {best} ] " if best > 1 else ""


def _plans_by_capability(model: ServedModel) -> list[str]:
    return [
        f'cc_model_filenames {{ key: "{_capability(target)}" value: "{name}" }}'
        for engine, name in plan_names(model).items()
        for target in model.engines[engine].targets
    ]


def _capability(target: str) -> str:
    """`sm_120` as Triton writes it: 12.0."""
    digits = target.removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}"
