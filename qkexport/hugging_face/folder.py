"""Loads a Hugging Face folder: weights in the type they are stored in, nothing run, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qkexport.errors import LoadError
from qkexport.hugging_face.config import FolderConfig, read_config
from qkexport.hugging_face.tasks import Task, infer_task
from qkexport.hugging_face.weights import find_weights
from qkexport.load import TorchSource
from qkexport.tensor_names import TensorNames


def load_folder(
    path: Path,
    *,
    dtype: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> TorchSource:
    """A model with example inputs of the task that config.json tells.

    Args:
        path: A folder with config.json and safetensors.
        dtype: Type to load the weights in; None keeps what the checkpoint has.
        allow_pickle: Read `.bin` weights where there are no others.
        trust_remote_code: Run the code that the folder brings along, if transformers does not know
            its family.

    Raises:
        LoadError: The folder is incomplete, damaged, not to be trusted, or of an unknown task.
        BackendUnavailableError: transformers is not installed.
    """
    config = read_config(path, trust_remote_code=trust_remote_code)
    task = infer_task(config)
    is_safe = find_weights(path, allow_pickle=allow_pickle)
    model = _load_model(config, task, dtype, is_safe=is_safe)

    from qkexport.hugging_face.inputs import example_inputs, reads_images
    from qkexport.hugging_face.modules import ImageModel, TextModel

    inputs, shapes = example_inputs(path, model, task)
    wrapper = ImageModel if reads_images(inputs) else TextModel
    return TorchSource(
        name=str(path),
        module=wrapper(model, task.outputs).eval(),
        kwargs=inputs,
        dynamic_shapes=shapes,
        names=TensorNames(outputs=task.outputs),
    )


def _load_model(config: FolderConfig, task: Task, dtype: str | None, *, is_safe: bool) -> Any:
    import transformers

    from qkexport.trace import exporter_noise_logged

    auto_class = getattr(transformers, task.auto_class)
    try:
        with exporter_noise_logged():
            model, report = auto_class.from_pretrained(
                str(config.path),
                dtype=dtype or "auto",
                use_safetensors=is_safe,
                local_files_only=True,
                trust_remote_code=config.is_custom,
                output_loading_info=True,
            )
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        text = f"{type(error).__name__}: {lines[0].rstrip('.')}"
        message = f"Source {config.path} must be loadable by transformers, got {text}."
        raise LoadError(message, hint="download the folder again, or see --debug.") from error
    _check_report(config.path, report)
    model.config.get_text_config(decoder=True).use_cache = False
    return model.eval()


def _check_report(path: Path, report: dict[str, Any]) -> None:
    """Weights that the files lack would be random numbers."""
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        found = [str(item) for item in report.get(kind) or ()]
        if found:
            shown = ", ".join(sorted(found)[:3]) + (", ..." if len(found) > 3 else "")
            what = kind.removesuffix("_keys").replace("error_msgs", "damaged")
            message = f"Source {path} must hold every weight, got {len(found)} {what}: {shown}."
            raise LoadError(message, hint="the weights are of another model, or incomplete.")
