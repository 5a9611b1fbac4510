"""The text of --input, --inputs and --dynamic as values."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qkexport.errors import UsageError
from qkexport.missing_file import require_file

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES: Final = (
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
_INPUT: Final = re.compile(r"(?P<name>[^=]+)=(?P<shape>[\d,x]*)(:(?P<dtype>\w+))?")
_DYNAMIC: Final = re.compile(
    r"(?P<name>[^=:]+):(?P<axis>-?\d+)=(?P<symbol>[A-Za-z_]\w*)"
    r"(:(?P<minimum>\d*)(:(?P<maximum>\d*))?)?"
)


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One model input described by its name, shape and element type.

    Example:
        >>> import qkexport
        >>> qkexport.InputSpec.parse("input_ids=2,16:int64")
        InputSpec(name='input_ids', shape=(2, 16), dtype='int64')
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @classmethod
    def parse(cls, text: str) -> InputSpec:
        """Reads NAME=SHAPE[:DTYPE], as in `input_ids=2,16:int64`; an empty SHAPE is a scalar.

        Raises:
            UsageError: The text has another form or names an unknown type.
        """
        match = _INPUT.fullmatch(text.strip())
        sizes = re.split("[,x]", match["shape"]) if match and match["shape"] else []
        if match is None or "" in sizes:
            message = f"--input must be NAME=SHAPE[:DTYPE], got {text!r}."
            raise UsageError(message, note="for example input_ids=2,16:int64 or x=1,3,224,224.")
        dtype = match["dtype"] or "float32"
        if dtype not in _DTYPES:
            message = f"--input {match['name']} must have a known type, got {dtype!r}."
            raise UsageError(message, note=f"accepted: {', '.join(_DTYPES)}.")
        return cls(match["name"], tuple(map(int, sizes)), dtype)


@dataclasses.dataclass(frozen=True)
class DynamicDim:
    """One axis of one input that may vary at run time.

    Attributes:
        name: Input.
        axis: Axis of that input; negative counts from the end.
        symbol: Axes with the same symbol have the same size.
        minimum: Smallest size, or None.
        maximum: Largest size, or None.

    Example:
        >>> import qkexport
        >>> dim = qkexport.DynamicDim.parse("input_ids:1=seq:1:512")
        >>> dim.axis, dim.symbol, dim.maximum
        (1, 'seq', 512)
    """

    name: str
    axis: int
    symbol: str
    minimum: int | None = None
    maximum: int | None = None

    @classmethod
    def parse(cls, text: str) -> DynamicDim:
        """Reads NAME:AXIS=SYMBOL[:MIN[:MAX]], as in `input_ids:1=seq:1:512`.

        Raises:
            UsageError: The text has another form or the range is empty.
        """
        match = _DYNAMIC.fullmatch(text.strip())
        if match is None:
            message = f"--dynamic must be NAME:AXIS=SYMBOL[:MIN[:MAX]], got {text!r}."
            raise UsageError(message, note="for example input_ids:1=seq:1:512.")
        minimum, maximum = (int(match[k]) if match[k] else None for k in ("minimum", "maximum"))
        if minimum is not None and maximum is not None and minimum >= maximum:
            message = f"--dynamic {match['symbol']} must have MIN < MAX, got {minimum}:{maximum}."
            raise UsageError(message)
        return cls(match["name"], int(match["axis"]), match["symbol"], minimum, maximum)


def read_inputs(path: Path) -> dict[str, Tensor]:
    """Reads named tensors from a .npz or .pt file; pickled objects are refused.

    Raises:
        UsageError: The file is missing, of another kind, or holds something besides named tensors.
    """
    require_file("--inputs file", path)
    if path.suffix not in (".npz", ".pt"):
        raise UsageError(f"--inputs file must be .npz or .pt, got {path}.")
    try:
        return _read_npz(path) if path.suffix == ".npz" else _read_pt(path)
    except UsageError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        message = f"--inputs {path} must hold named tensors and nothing pickled, got {text}."
        raise UsageError(message) from error


def _read_npz(path: Path) -> dict[str, Tensor]:
    import numpy as np
    import torch

    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _read_pt(path: Path) -> dict[str, Tensor]:
    import torch

    loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    named = isinstance(loaded, dict) and all(isinstance(name, str) for name in loaded)
    if not named or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        message = f"--inputs {path} must hold a dict of tensors, got {type(loaded).__name__}."
        raise UsageError(message)
    return dict(loaded)
