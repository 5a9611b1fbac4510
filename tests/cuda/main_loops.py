"""The main loop of a kernel in machine code, and its table of instructions."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

_INSTRUCTION: Final = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)[^;]*;")
_BRANCH: Final = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?BRA[^;]*?0x([0-9a-f]+)\s*;")

# What a step of the main loop is made of. Others (integer arithmetic, moves, branches) change with
# every release of the compiler.
COUNTED: Final = ("HMMA", "LDSM", "LDGSTS", "BAR")


def instructions(code: str) -> list[tuple[int, str]]:
    """Address and opcode of every instruction of a disassembly with one kernel."""
    return [(int(at, 16), name) for at, name in _INSTRUCTION.findall(code)]


def main_loop(code: str) -> tuple[int, int]:
    """First and last address of the innermost loop around every tensor-core instruction.

    Raises:
        ValueError: No backward branch spans all of them.
    """
    products = [at for at, name in instructions(code) if name == "HMMA"]
    loops = [
        (int(target, 16), int(at, 16))
        for at, target in _BRANCH.findall(code)
        if int(target, 16) <= products[0] and int(at, 16) >= products[-1]
    ]
    if not loops:
        message = "a loop around the tensor-core instructions must exist, got none"
        raise ValueError(message)
    return min(loops, key=lambda loop: loop[1] - loop[0])


def count_main_loop(code: str) -> dict[str, int]:
    """How often each counted opcode stands in the main loop, rare branches included."""
    first, last = main_loop(code)
    counts = Counter(name for at, name in instructions(code) if first <= at <= last)
    return {name: counts[name] for name in COUNTED}
