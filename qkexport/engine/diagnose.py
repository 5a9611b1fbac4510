"""TensorRT's words translated into whose move it is and what the move is."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

from qkexport.errors import BuildError
from qkexport.spec import OP_TYPE


@dataclasses.dataclass(frozen=True)
class _Remedy:
    """A pattern in TensorRT's log, what it means and what to do."""

    pattern: re.Pattern[str]
    note: str
    hint: str


def _remedy(pattern: str, note: str, hint: str) -> _Remedy:
    return _Remedy(re.compile(pattern, re.IGNORECASE | re.DOTALL), note, hint)


_REMEDIES: Final = (
    _remedy(
        r"could not find any supported formats",
        f"the {OP_TYPE} plugin takes query, key and value in one type of float32, float16 or "
        "bfloat16 (linear layout); gains, caches and mask in that type or float32 (mask also "
        "bool); head_scale in float32; position_ids, kv_lengths and segment_ends in int64.",
        "cast the inputs of the node, or export with --dtype.",
    ),
    _remedy(
        r"not supported by a dedicated kernel",
        "TensorRT's attention wants float16 or bfloat16, a head dim of at most 256 and equal "
        "types for query and mask.",
        "qkexport convert --form native --runtime tensorrt lowers other attention to primitives.",
    ),
    _remedy(
        r"for Turing \(SM75\)",
        "on Turing (sm_75) TensorRT-RTX multiplies no float32 matrices.",
        "convert with --dtype float16, or leave sm_75 out of the targets.",
    ),
    _remedy(
        r"no tactics to implement|workspace memory|within workspace limit",
        "no kernel fits into the workspace.",
        "give a larger --workspace, or leave it out.",
    ),
    _remedy(
        r"graph_jit.*CUDA_SUCCESS",
        "TensorRT-RTX compiles refittable and stripped engines only with a CUDA driver at hand.",
        "build with --refit or --strip-weights on a machine with an NVIDIA driver.",
    ),
    _remedy(
        r"unable to load library: libnvinfer_lean",
        "a version-compatible engine carries TensorRT's lean runtime, which is not installed.",
        "install the lean runtime of the same version, or leave out --version-compatible.",
    ),
    _remedy(
        r"failed to open|could not open|external data|FailedToOpenFile|weights file",
        "external data lies beside the model, at the path that the model names.",
        "copy the data file along with the model.",
    ),
    _remedy(
        r"out of memory|bad_alloc|MEM_ALLOC_FAILED",
        "TensorRT ran out of memory.",
        "build on a machine with more memory, or split the model.",
    ),
    _remedy(
        r"missing values for shape input",
        "the values of this input decide over shapes, so a profile must say how they vary.",
        "give --shape NAME=MIN,OPT,MAX with the values joined by x, as in target=1x1,6x2,24x24.",
    ),
    _remedy(
        r"optimization profile|profile \d+|kMIN|kOPT|kMAX",
        "the shapes of an optimization profile do not fit the model.",
        "give --shape NAME=MIN,OPT,MAX that the model accepts.",
    ),
)


def build_error(subject: str, stage: str, said: Sequence[str]) -> BuildError:
    """The error of a failed parse or build.

    Args:
        subject: Name of the model.
        stage: What failed, as a rule: `must be parsed by tensorrt-rtx`.
        said: TensorRT's own error messages, first one first.
    """
    text = "\n".join(said)
    remedy = next((known for known in _REMEDIES if known.pattern.search(text)), None)
    message = f"Model {subject} {stage}, got {_summary(said)}."
    if remedy is None:
        return BuildError(message, hint="-vv shows TensorRT's log.")
    return BuildError(message, note=remedy.note, hint=remedy.hint)


_LOCATION: Final = re.compile(r"^\[[^\]]*\]\s*|\s*In \w+ at \S+:\d+\)?$")
_LONGEST: Final = 400


def _summary(said: Sequence[str]) -> str:
    if not said:
        return "no engine and no message"
    text = " ".join(_LOCATION.sub("", said[-1]).split()).rstrip(".")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
