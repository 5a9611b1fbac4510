"""The first bytes of a TensorRT-RTX engine: which version built it, and for which GPUs.

The layout was read off engines of TensorRT-RTX 1.7 built for known targets; NVIDIA does not
document it. A header that looks different is taken as saying nothing.
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Final

from qkexport.engine.targets import PORTABLE

HEADER_BYTES: Final = 64
_MAGIC: Final = b"vtrt"
# magic, 12 bytes, size of the file, four parts of the version, magic, bits of the targets
_LAYOUT: Final = struct.Struct("<4s12xQ4B4sQ")
# One bit a target, in the order of TensorRT-RTX's ComputeCapability; the last is any later one.
_TARGETS: Final = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
_DEFAULT_BITS: Final = 0b1111110


@dataclasses.dataclass(frozen=True)
class EngineHeader:
    """What an engine says about itself.

    Attributes:
        size: Bytes of the whole engine.
        version: Of the TensorRT-RTX that built it, four numbers.
        targets: Compute capabilities that it runs on.
    """

    size: int
    version: str
    targets: tuple[str, ...]


def read_header(engine: Path) -> EngineHeader | None:
    """The header of an engine file, or None when it is of another kind."""
    with engine.open("rb") as file:
        return parse_header(file.read(HEADER_BYTES))


def parse_header(head: bytes) -> EngineHeader | None:
    """The header in the first bytes of an engine, or None when it is of another kind."""
    if len(head) < HEADER_BYTES:
        return None
    first, size, *version, second, bits = _LAYOUT.unpack_from(head)
    if first != _MAGIC or second != _MAGIC or bits >> (len(_TARGETS) + 1):
        return None
    named = tuple(name for place, name in enumerate(_TARGETS) if bits >> place & 1)
    targets = (PORTABLE,) if bits == _DEFAULT_BITS else named
    return EngineHeader(size, ".".join(map(str, version)), targets)
