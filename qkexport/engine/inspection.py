"""What is in an engine: its manifest, and whether the files are as they were built."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

from qkexport.engine.header import EngineHeader, read_header
from qkexport.engine.output import ENGINE_SUFFIXES
from qkexport.engine.verify import verify_files
from qkexport.errors import LoadError
from qkexport.manifest import Manifest, read_manifest

_MANIFEST_SUFFIX: Final = ".json"


@dataclasses.dataclass(frozen=True)
class EngineInspection:
    """One engine as its manifest describes it.

    Attributes:
        path: The engine.
        manifest: What it was built from and for whom.
        header: What the engine says about itself; None where its layout is not known.
        problem: Why the engine must not be loaded; None when it is as it was built.
    """

    path: Path
    manifest: Manifest
    header: EngineHeader | None
    problem: str | None

    def __bool__(self) -> bool:
        return self.problem is None

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "path": str(self.path),
            "kind": "engine",
            "passed": bool(self),
            "problem": self.problem,
            "header": None if self.header is None else dataclasses.asdict(self.header),
            "manifest": self.manifest.to_document(),
        }


def is_engine(path: Path) -> bool:
    """Whether a path names an engine, or the manifest of one."""
    name = path.name.removesuffix(_MANIFEST_SUFFIX)
    return Path(name).suffix in ENGINE_SUFFIXES


def inspect_engine(path: Path) -> EngineInspection:
    """Reads the manifest of an engine and compares the engine with it.

    Args:
        path: The engine, or its manifest.

    Raises:
        LoadError: There is no manifest, or it was changed.
    """
    engine = path.with_name(path.name.removesuffix(_MANIFEST_SUFFIX))
    manifest = read_manifest(engine.with_name(engine.name + _MANIFEST_SUFFIX))
    try:
        verify_files(engine)
        problem = None
    except LoadError as error:
        problem = str(error)
    header = read_header(engine) if engine.is_file() else None
    return EngineInspection(engine, manifest, header, problem)
