"""What a pickle would import, read from its opcodes without running any of them.

The answer words an error message; it is no sandbox. Nothing is unpickled because a scan liked it.
"""

from __future__ import annotations

import dataclasses
import pickletools
from typing import IO, Final

# torch.save without zip writes this number, the protocol and the platform before the object, each
# as a pickle of its own.
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LEGACY_PREFIX: Final = 3

# Everything a file of plain tensors imports.
_TENSOR_GLOBALS: Final = frozenset(
    {
        "collections.OrderedDict",
        "collections.defaultdict",
        "torch.Size",
        "torch.Tensor",
        "torch.device",
        "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout",
    }
)
_RUNS_COMMANDS: Final = frozenset(
    {
        "_posixsubprocess", "asyncio", "bdb", "code", "commands", "ctypes", "importlib", "nt",
        "os", "pdb", "pip", "platform", "posix", "pty", "requests", "runpy", "shutil", "socket",
        "subprocess", "sys", "timeit", "urllib", "webbrowser",
    }
)  # fmt: skip
_RUNS_CODE: Final = frozenset(
    f"builtins.{name}" for name in ("__import__", "breakpoint", "compile", "eval", "exec", "open")
)


@dataclasses.dataclass(frozen=True)
class PickleScan:
    """The globals that unpickling would import, as `module.name`, each once, in order."""

    imports: tuple[str, ...]

    @property
    def holds_only_tensors(self) -> bool:
        """True if no class of a model is named: a state_dict or another bag of tensors."""
        return all(map(_is_tensor_global, self.imports))

    @property
    def commands(self) -> tuple[str, ...]:
        """Imports that no model needs and that run programs or code."""
        return tuple(name for name in self.imports if _is_command(name))


def scan_pickle(stream: IO[bytes]) -> PickleScan:
    """Reads the opcodes of one saved object.

    Args:
        stream: Positioned at a pickle, or at what torch.save wrote without zip.

    Raises:
        ValueError: The opcodes end early or are no pickle.
    """
    imports, number = _scan_one(stream)
    if number == _LEGACY_MAGIC:
        for _ in range(_LEGACY_PREFIX):
            imports, _ = _scan_one(stream)
    return PickleScan(tuple(dict.fromkeys(imports)))


def _scan_one(stream: IO[bytes]) -> tuple[list[str], int | None]:
    imports: list[str] = []
    texts: list[str] = []  # strings in the order they reach the stack
    memo: dict[int, str] = {}
    number: int | None = None
    last: str | None = None
    for opcode, argument, _ in pickletools.genops(stream):
        name = opcode.name
        if name in ("GLOBAL", "INST"):
            imports.append(str(argument).replace(" ", ".", 1))
        elif name == "STACK_GLOBAL":
            imports.append(".".join(texts[-2:]) if len(texts) > 1 else "<computed>")
        elif name in ("LONG1", "LONG4", "LONG"):
            number = argument
        if name == "MEMOIZE" or "PUT" in name:
            if last is not None:
                memo[len(memo) if argument is None else argument] = last
            elif name == "MEMOIZE":
                memo[len(memo)] = ""  # keeps the implied index in step
            continue
        last = argument if isinstance(argument, str) and "UNICODE" in name else None
        if "GET" in name and argument in memo:
            last = memo[argument]
        if last is not None:
            texts.append(last)
    return imports, number


def _is_tensor_global(name: str) -> bool:
    if name.startswith(("torch._utils._rebuild_", "torch._tensor._rebuild_")):
        return True
    module, _, attribute = name.rpartition(".")
    is_dtype = module == "torch" and attribute.islower()
    is_storage = module in ("torch", "torch.storage") and attribute.endswith("Storage")
    return name in _TENSOR_GLOBALS or is_dtype or is_storage


def _is_command(name: str) -> bool:
    return name in _RUNS_CODE or name.partition(".")[0] in _RUNS_COMMANDS
