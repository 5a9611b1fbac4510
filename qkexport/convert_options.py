"""What `convert` may be asked for; refused before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qkexport.attention_record import AttentionRecord, AttentionStatus
from qkexport.errors import UsageError
from qkexport.opset import OPSETS

FORMS: Final = ("portable", "fused", "native")
RUNTIMES: Final = ("ort", "tensorrt")
DTYPES: Final = ("float32", "float16", "bfloat16")


def check_options(
    output: str | Path, form: str, runtime: str, dtype: str | None, opset: int | None
) -> Path:
    """The output path, if it can be written and the other options are known.

    Raises:
        UsageError: An option has an unknown value, or the output is no .onnx in a folder.
    """
    for option, value, accepted in (
        ("form", form, FORMS),
        ("runtime", runtime, RUNTIMES),
        ("dtype", dtype, (None, *DTYPES)),
        ("opset", opset, (None, *OPSETS)),
    ):
        if value not in accepted:
            names = ", ".join(str(name) for name in accepted if name is not None)
            raise UsageError(f"Option {option} must be one of {names}, got {value!r}.")
    if (form, runtime) == ("portable", "tensorrt"):
        message = "Form of a model for TensorRT must be fused or native, got 'portable'."
        raise UsageError(message, hint="pass form fused for the plugin, native without it.")
    path = Path(output)
    if path.is_dir() or path.suffix != ".onnx":
        raise UsageError(f"Output must be an .onnx file, got {path}.")
    if not path.parent.is_dir():
        raise UsageError(f"Output must be in an existing folder, got {path}.")
    return path


def check_required(require_fused: int | str) -> None:
    """Refuses what is neither a count nor `all`.

    Raises:
        UsageError: It is something else.
    """
    known = require_fused == "all" or (isinstance(require_fused, int) and require_fused >= 0)
    if not known:
        message = f"Option require_fused must be a count or 'all', got {require_fused!r}."
        raise UsageError(message)


def required_count(require_fused: int | str, records: Sequence[AttentionRecord]) -> int:
    """How many attentions must be fused."""
    if isinstance(require_fused, int):
        return require_fused
    found = sum(record.status is not AttentionStatus.NO_QK_NORM for record in records)
    return max(1, found)  # finding none must not pass as having fused all
