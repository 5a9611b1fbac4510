"""What a build hands back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qkexport.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at after the build.

    Attributes:
        name: What was looked at.
        passed: None when it could not be looked at here.
        detail: What was seen, or why nothing could be.
    """

    name: str
    passed: bool | None
    detail: str


@dataclasses.dataclass(frozen=True)
class BuildResult:
    """An engine, and how it came about.

    Attributes:
        output: The engine; None when a check failed, and an older file is as it was.
        manifest: What is known about it.
        runtime_reason: Why this runtime.
        attention_reason: Why this attention; empty without QKNormAttention nodes.
        checks: What was looked at after the build.
        seconds: Time of each stage.
        engine_bytes: Size of the engine.
        cached: True when the engine came out of the cache.
    """

    output: Path | None
    manifest: Manifest
    runtime_reason: str
    attention_reason: str
    checks: tuple[Check, ...]
    seconds: Mapping[str, float]
    engine_bytes: int
    cached: bool = False

    def __bool__(self) -> bool:
        return all(check.passed is not False for check in self.checks)

    def to_document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "output": None if self.output is None else str(self.output),
            "passed": bool(self),
            "manifest": self.manifest.to_document(),
            "runtime_reason": self.runtime_reason,
            "attention_reason": self.attention_reason,
            "engine_bytes": self.engine_bytes,
            "checks": [dataclasses.asdict(check) for check in self.checks],
            "seconds": dict(self.seconds),
            "cached": self.cached,
        }
