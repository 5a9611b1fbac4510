"""What a model is for, told from the class its weights were saved from."""

from __future__ import annotations

import dataclasses
from typing import Final

from qkexport.errors import LoadError
from qkexport.hugging_face.config import FolderConfig


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as Hugging Face names it.

    Attributes:
        name: Of the task.
        auto_class: Class of transformers that loads models for it.
        outputs: What is kept of the model's result, in order.
    """

    name: str
    auto_class: str
    outputs: tuple[str, ...] = ("logits",)


_GENERATION: Final = Task("text-generation", "AutoModelForCausalLM")
_BY_SUFFIX: Final = {
    "ForCausalLM": _GENERATION,
    "LMHeadModel": _GENERATION,
    "ForMaskedLM": Task("fill-mask", "AutoModelForMaskedLM"),
    "ForSequenceClassification": Task("text-classification", "AutoModelForSequenceClassification"),
    "ForTokenClassification": Task("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": Task(
        "question-answering", "AutoModelForQuestionAnswering", ("start_logits", "end_logits")
    ),
    "ForImageClassification": Task("image-classification", "AutoModelForImageClassification"),
    "Model": Task("feature-extraction", "AutoModel", ("last_hidden_state",)),
}  # the first fitting suffix counts


def infer_task(config: FolderConfig) -> Task:
    """The task of an architecture.

    Raises:
        LoadError: There is no rule for it.
    """
    for suffix, task in _BY_SUFFIX.items():
        if config.architecture.endswith(suffix):
            return task
    if _continues_text(config):
        return _GENERATION
    message = (
        f"Source {config.path} must be for a task with known inputs, got {config.architecture}."
    )
    note = f"known are architectures that end with {', '.join(_BY_SUFFIX)}."
    hint = "write a factory that returns the model and its inputs, then convert it."
    raise LoadError(message, note=note, hint=hint)


def _continues_text(config: FolderConfig) -> bool:
    """Whether it is a model of images and text that transformers also loads as a causal LM."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type) == config.architecture
