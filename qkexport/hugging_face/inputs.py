"""Example inputs of a task, called as optimum calls them, and which of their axes vary."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import torch

from qkexport.errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from qkexport.hugging_face.tasks import Task

_BATCH, _LENGTH = 2, 8
_TOKENS: Final = "input_ids"
_PIXELS: Final = "pixel_values"


def example_inputs(path: Path, model: Any, task: Task) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inputs by name, and their dynamic shapes.

    Raises:
        LoadError: The model reads neither tokens nor images.
    """
    main = str(getattr(model, "main_input_name", _TOKENS))
    if main == _TOKENS:
        inputs = _text(model, task)
        axes = {
            0: torch.export.Dim("batch_size", min=1),
            1: torch.export.Dim("sequence_length", min=1),
        }
        return inputs, dict.fromkeys(inputs, axes)
    if main == _PIXELS:
        return _images(model), {_PIXELS: {0: torch.export.Dim("batch_size", min=1)}}
    message = f"Source {path} must read {_TOKENS} or {_PIXELS}, got a model of {main}."
    raise LoadError(message, hint="write a factory that returns the model and its inputs.")


def reads_images(inputs: dict[str, Tensor]) -> bool:
    """Whether these are images."""
    return _PIXELS in inputs


def _text(model: Any, task: Task) -> dict[str, Tensor]:
    shape = (_BATCH, _LENGTH)
    generator = torch.Generator().manual_seed(0)
    rows = int(model.get_input_embeddings().weight.shape[0])
    inputs = {
        _TOKENS: torch.randint(rows, shape, generator=generator),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
    }
    accepted = inspect.signature(model.forward).parameters
    if task.auto_class == "AutoModelForCausalLM":
        if "position_ids" in accepted:
            inputs["position_ids"] = torch.arange(_LENGTH).repeat(_BATCH, 1)
    elif "token_type_ids" in accepted and getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.zeros(shape, dtype=torch.int64)
    return inputs


def _images(model: Any) -> dict[str, Tensor]:
    config = model.config
    config = getattr(config, "vision_config", config)
    size: Any = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = int(getattr(config, "num_channels", 3))
    generator = torch.Generator().manual_seed(0)
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    pixels = torch.randn(_BATCH, channels, int(height), int(width), generator=generator)
    return {_PIXELS: pixels.to(dtype)}
