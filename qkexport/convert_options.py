"""What `convert` may be asked for; refused before any work is done."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path
from typing import Final

from qkexport.attention_record import AttentionRecord, AttentionStatus
from qkexport.errors import UsageError
from qkexport.opset import OPSETS
from qkexport.spec import KvCache

FORMS: Final = ("portable", "fused", "native")
RUNTIMES: Final = ("ort", "tensorrt")
DTYPES: Final = ("float32", "float16", "bfloat16")
KV_CACHES: Final = tuple(map(str, KvCache))
TENSOR_SCATTER_OPSET: Final = 24


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


def check_cache_options(
    kv_cache: str | None, opset: int | None, inputs: Sized, dynamic: Sized
) -> None:
    """Refuses options that a model with a cache leaves no choice about.

    Raises:
        UsageError: The kind of cache is unknown, or another option does not go with it.
    """
    if kv_cache is None:
        return
    if kv_cache not in KV_CACHES:
        names = ", ".join(KV_CACHES)
        raise UsageError(f"Option kv_cache must be one of {names}, got {kv_cache!r}.")
    for option, value in (("inputs", inputs), ("dynamic", dynamic)):
        if len(value):
            message = f"Option {option} must be left out with kv_cache, got {len(value)} of them."
            hint = "a model with a cache has fixed names, and its axes vary."
            raise UsageError(message, hint=hint)
    if kv_cache == KvCache.STATIC and opset is not None and opset < TENSOR_SCATTER_OPSET:
        message = f"Option opset must be at least 24 with a static cache, got {opset}."
        raise UsageError(message, hint="older opsets have no TensorScatter; leave --opset out.")


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
