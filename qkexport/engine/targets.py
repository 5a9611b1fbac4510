"""Compute capabilities that TensorRT-RTX compiles for ahead of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from qkexport.errors import BuildError, UsageError

if TYPE_CHECKING:
    import tensorrt_rtx as rtx

ALL: Final = "all"
_TARGET: Final = re.compile(r"(?:sm_?|compute_)?(\d+)\.?(\d)", re.IGNORECASE)
# What TensorRT-RTX builds for without being told: Turing (75) must be asked for.
PORTABLE: Final = "sm_80+"


def parse_targets(text: str) -> tuple[str, ...]:
    """Targets of a text such as `sm_89,sm_120`, in ascending order; `all` and `sm_80+` stay.

    Raises:
        UsageError: A part names no compute capability.
    """
    if text.strip().lower() in (ALL, PORTABLE):
        return (text.strip().lower(),)
    numbers = set()
    for part in text.split(","):
        match = _TARGET.fullmatch(part.strip())
        if match is None:
            message = f"Target must be a compute capability, got {part.strip()!r}."
            raise UsageError(message, note="written as sm_89, several joined by commas, or all.")
        numbers.add(int(match[1] + match[2]))
    return tuple(f"sm_{number}" for number in sorted(numbers))


def known_targets() -> tuple[str, ...]:
    """Every target that the installed TensorRT-RTX compiles for, in ascending order."""
    import tensorrt_rtx as rtx

    names = rtx.ComputeCapability.__members__
    numbers = sorted(int(name.removeprefix("SM")) for name in names if name.startswith("SM"))
    return tuple(f"sm_{number}" for number in numbers)


def resolve_targets(wanted: Sequence[str]) -> tuple[str, ...]:
    """The targets to compile for: those wanted, all, or TensorRT-RTX's default.

    Raises:
        UsageError: TensorRT-RTX does not compile for a target.
    """
    known = known_targets()
    if tuple(wanted) == (ALL,):
        return known
    if tuple(wanted) in ((), (PORTABLE,)):
        return (PORTABLE,)
    for target in wanted:
        if target not in known:
            message = f"Target must be one that tensorrt-rtx compiles for, got {target}."
            note = f"the installed version knows {', '.join(known)}."
            hint = "for other GPUs build with --runtime tensorrt on a machine that has one."
            raise UsageError(message, note=note, hint=hint)
    return tuple(wanted)


def set_targets(config: rtx.IBuilderConfig, targets: Sequence[str]) -> None:
    """Tells a build its targets.

    Raises:
        BuildError: TensorRT-RTX refuses one.
    """
    import tensorrt_rtx as rtx

    if tuple(targets) == (PORTABLE,):
        return
    config.num_compute_capabilities = len(targets)
    for index, target in enumerate(targets):
        capability = rtx.ComputeCapability.__members__[target.replace("sm_", "SM")]
        if not config.set_compute_capability(capability, index):
            message = f"Target must be accepted by tensorrt-rtx, got {target}."
            raise BuildError(message)


def runs_on(target: str, targets: Sequence[str]) -> bool:
    """Whether an engine built for `targets` runs on a GPU of compute capability `target`."""
    return target in targets or (PORTABLE in targets and _number(target) >= _number(PORTABLE))


def _number(target: str) -> int:
    return int(target.removeprefix("sm_").removesuffix("+"))
