"""What a build is asked for, as values; the texts of the command line are parsed here."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from qkexport.errors import UsageError

Shape = tuple[int, ...]


class AttentionChoice(enum.StrEnum):
    """Who computes the attention: qkexport's plugin, or TensorRT's own operators."""

    AUTO = "auto"
    PLUGIN = "plugin"
    NATIVE = "native"


@dataclasses.dataclass(frozen=True)
class ShapeRange:
    """Shapes of one input in one optimization profile; of a shape tensor, its values.

    Raises:
        UsageError: Ranks differ, or some size is out of order or negative.
    """

    minimum: Shape
    optimum: Shape
    maximum: Shape

    def __post_init__(self) -> None:
        sizes = (self.minimum, self.optimum, self.maximum)
        ranks = {len(shape) for shape in sizes}
        ordered = len(ranks) == 1 and all(
            0 <= low <= best <= high for low, best, high in zip(*sizes, strict=True)
        )
        if not ordered:
            message = f"Shapes of a profile must have one rank and rise from 0, got {self}."
            raise UsageError(message, note="minimum <= optimum <= maximum in every dimension.")

    def __str__(self) -> str:
        return ",".join("x".join(map(str, shape)) for shape in dataclasses.astuple(self))


Profile = Mapping[str, ShapeRange]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What TensorRT is told besides the model.

    Attributes:
        profiles: Shape ranges by input name, one mapping an optimization profile.
        targets: Compute capabilities such as `sm_89`; empty is this GPU, or the runtime's own.
        timing_cache: File that keeps kernel timings from build to build.
        workspace: Most scratch memory that a kernel may use, in bytes; None is TensorRT's own.
        refit: Weights can be replaced in the engine.
        strip_weights: The engine is shipped without weights that a refit brings back.
        version_compatible: Newer TensorRT versions can load the engine.
        opt_level: 0 (fast build) to 5 (fast engine); None is TensorRT's own.
    """

    profiles: tuple[Profile, ...] = ()
    targets: tuple[str, ...] = ()
    timing_cache: Path | None = None
    workspace: int | None = None
    refit: bool = False
    strip_weights: bool = False
    version_compatible: bool = False
    opt_level: int | None = None

    def __post_init__(self) -> None:
        if self.opt_level is not None and not 0 <= self.opt_level <= _MAX_OPT_LEVEL:
            message = f"Optimization level must be 0 to {_MAX_OPT_LEVEL}, got {self.opt_level}."
            raise UsageError(message)
        if self.workspace is not None and self.workspace < 1:
            raise UsageError(f"Workspace must be at least one byte, got {self.workspace}.")

    def to_document(self) -> dict[str, Any]:
        """Everything that shapes the engine, as JSON; the timing cache only shapes build time."""
        document = dataclasses.asdict(self)
        del document["timing_cache"], document["profiles"]
        document["targets"] = list(self.targets)
        return document


_MAX_OPT_LEVEL: Final = 5
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a text such as `512M`, `4GiB` or `1048576`.

    Raises:
        UsageError: The text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        message = f"Size must be a number with an optional unit, got {text!r}."
        raise UsageError(message, note="K, M, G and T are powers of 1024: 512M, 4GiB.")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_shapes(texts: Sequence[str]) -> tuple[Profile, ...]:
    """Profiles of texts such as `x=1x1,4x128,8x512`.

    The n-th text with the same name belongs to the n-th profile.

    Raises:
        UsageError: A text is malformed.
    """
    profiles: list[dict[str, ShapeRange]] = []
    for text in texts:
        name, shapes = _parse_shape(text)
        profile = next((known for known in profiles if name not in known), None)
        if profile is None:
            profile = {}
            profiles.append(profile)
        profile[name] = shapes
    return tuple(profiles)


def _parse_shape(text: str) -> tuple[str, ShapeRange]:
    name, separator, rest = text.rpartition("=")
    parts = rest.split(",")
    try:
        shapes = [tuple(int(size) for size in part.lower().split("x")) for part in parts]
    except ValueError:
        shapes = []
    if not name or not separator or len(shapes) not in (1, 3):
        message = f"Shape must read NAME=MIN,OPT,MAX, got {text!r}."
        note = "sizes are joined by x, and one shape stands for all three: x=1x1,4x128,8x512."
        raise UsageError(message, note=note)
    return name, ShapeRange(shapes[0], shapes[len(shapes) // 2], shapes[-1])
