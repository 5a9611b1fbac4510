"""timm without torchvision, whose registry builds do not load beside the CPU build of torch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Final

_STAND_INS: Final = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
)


class _AnyClass(type):
    """A class that has every attribute: its name."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(ModuleType):
    """Answers every name with an empty class: timm subclasses and compares, but never calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = _AnyClass(name, (), {})
        setattr(self, name, kind)
        return kind


def import_timm(name: str) -> Any:
    """Imports a module of timm; torchvision is as absent afterwards as it was before."""
    stand_ins = {missing: _StandIn(missing) for missing in _STAND_INS}
    for missing, module in stand_ins.items():
        parent, _, child = missing.rpartition(".")
        if parent:
            setattr(stand_ins[parent], child, module)
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(name)
    finally:
        for missing in stand_ins:
            del sys.modules[missing]
