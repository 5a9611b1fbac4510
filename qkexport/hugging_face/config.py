"""What config.json says, read before anything of the folder is trusted."""

from __future__ import annotations

import dataclasses
import difflib
import json
from pathlib import Path
from typing import Any

from qkexport.errors import BackendUnavailableError, LoadError


@dataclasses.dataclass(frozen=True)
class FolderConfig:
    """The part of config.json that decides how a folder is read.

    Attributes:
        path: The folder.
        model_type: As transformers calls the family.
        architecture: Class that the weights were saved from.
        is_custom: Only code in the folder knows the family.
    """

    path: Path
    model_type: str
    architecture: str
    is_custom: bool


def read_config(path: Path, *, trust_remote_code: bool) -> FolderConfig:
    """Reads config.json.

    Raises:
        LoadError: There is none, it is damaged, or it names a family that only custom code knows.
        BackendUnavailableError: transformers is not installed.
    """
    fields = _fields(path)
    if "model_type" not in fields:
        raise _without_family(path, fields)
    model_type = str(fields["model_type"])
    known = _known_families()
    is_custom = model_type not in known
    if is_custom and not fields.get("auto_map"):
        close = difflib.get_close_matches(model_type, known, n=1)
        message = f"Source {path} must be of a family that transformers knows, got {model_type!r}."
        hint = f"did you mean {close[0]!r}?" if close else "update transformers."
        raise LoadError(message, hint=hint)
    if is_custom and not trust_remote_code:
        message = f"Source {path} must not bring its own code, got auto_map for {model_type!r}."
        note = "nothing of it was run."
        hint = "read the code, then pass --trust-remote-code, or update transformers."
        raise LoadError(message, note=note, hint=hint)
    architectures = fields.get("architectures") or []
    if not architectures:
        message = f"Source {path} must name its architectures in config.json, got none."
        hint = 'add for example "architectures": ["Qwen3ForCausalLM"].'
        raise LoadError(message, hint=hint)
    return FolderConfig(path, model_type, str(architectures[0]), is_custom)


def _fields(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        raise _without_config(path)
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        message = f"Source {file} must be JSON, got {error}."
        raise LoadError(message, hint="download it again.") from None
    if not isinstance(fields, dict):
        raise LoadError(f"Source {file} must hold an object, got {type(fields).__name__}.")
    return fields


def _without_config(path: Path) -> LoadError:
    message = f"Source {path} must be a file or a Hugging Face folder, got one without config.json."
    if (path / "model_index.json").is_file():
        return LoadError(message, hint="it holds a pipeline: name the folder of its transformer.")
    return LoadError(message, hint="name the folder that holds config.json and the weights.")


def _without_family(path: Path, fields: dict[str, Any]) -> LoadError:
    if "_class_name" in fields:
        message = f"Source {path} must be a model of transformers, got {fields['_class_name']}."
        hint = "write a factory that returns the diffusers model and its inputs."
        return LoadError(message, hint=hint)
    message = f"Source {path} must name its model_type in config.json, got none."
    return LoadError(message, hint="download config.json again.")


def _known_families() -> list[str]:
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError as error:
        message = "Hugging Face folders need transformers, got none installed."
        raise BackendUnavailableError(message, hint="pip install 'qkexport[hf]'.") from error
    return list(CONFIG_MAPPING.keys())
