"""Engines by what they were built from: the same inputs are never built twice.

An entry is a folder named after the digest of everything that shapes the engine. It appears in one
step, so that a killed build leaves nothing that could be taken for an entry, and its engine is
checked against its manifest whenever it is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from qkexport.engine.evidence import keep_evidence
from qkexport.engine.verify import verify_files
from qkexport.errors import LoadError
from qkexport.files import link_or_copy, remove_abandoned_folders, writing
from qkexport.manifest import FileRecord, Manifest, manifest_path, write_manifest

_LOG: Final = logging.getLogger(__name__)
_ENGINE: Final = "model.engine"


def cache_key(parts: dict[str, Any]) -> str:
    """Digest of everything that shapes an engine."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class EngineCache:
    """A folder of engines that builds share, also at the same time.

    Attributes:
        root: The folder; made when the first engine is stored.
    """

    root: Path

    def entry(self, key: str) -> Path:
        """Folder of an engine."""
        return self.root / key[:2] / key

    def fetch(self, key: str, output: Path) -> Manifest | None:
        """Puts a known engine and its manifest at `output`; None when there is none.

        An entry that is not as it was stored is removed, with a warning.
        """
        engine = self.entry(key) / _ENGINE
        if not engine.exists():
            return None
        try:
            manifest = verify_files(engine)
        except LoadError as error:
            _LOG.warning("cache entry %s is damaged and is built again: %s", key[:12], error)
            shutil.rmtree(self.entry(key), ignore_errors=True)
            return None
        manifest = dataclasses.replace(
            manifest, engine=FileRecord(output.name, manifest.engine.sha256)
        )
        manifest = keep_evidence(manifest, output)
        with writing(output) as temporary:
            link_or_copy(engine, temporary)
        write_manifest(output, manifest)
        return manifest

    def store(self, key: str, engine: Path) -> None:
        """Keeps a finished engine; where it cannot, it warns: the engine itself is built."""
        try:
            self._store(key, engine)
        except OSError as error:
            _LOG.warning("the engine is not kept in the cache: %s", error)

    def _store(self, key: str, engine: Path) -> None:
        entry = self.entry(key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned_folders(self.root)
        folder = Path(tempfile.mkdtemp(prefix=f".{os.getpid()}.", suffix=".partial", dir=self.root))
        try:
            link_or_copy(engine, folder / _ENGINE)
            shutil.copyfile(manifest_path(engine), manifest_path(folder / _ENGINE))
            with contextlib.suppress(OSError):  # not empty: another build was faster
                folder.rename(entry)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
