"""Which manifests speak of a file, and what they know of it that a new build must not forget."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from qkexport.engine.inspection import is_engine
from qkexport.engine.prepare import model_digest
from qkexport.errors import LoadError
from qkexport.manifest import Manifest, ParityEvidence, manifest_path, read_manifest, write_manifest

_LOG: Final = logging.getLogger(__name__)

Field = Literal["parity", "onnx_parity"]


@dataclasses.dataclass(frozen=True)
class EvidencePlace:
    """Where a manifest says how far a file was proven.

    Attributes:
        engine: The engine of the manifest.
        manifest: As it was when the place was found.
        field: `parity` where the file is the engine, `onnx_parity` where it is its model.
    """

    engine: Path
    manifest: Manifest
    field: Field

    def put(self, evidence: ParityEvidence) -> None:
        """Writes evidence into the manifest, unless the engine was built anew meanwhile."""
        path = manifest_path(self.engine)
        try:
            now = read_manifest(path)
            if (now.engine, now.onnx) != (self.manifest.engine, self.manifest.onnx):
                _LOG.warning("%s is of another build now and keeps what it says", path)
                return
            write_manifest(self.engine, self._told(now, evidence))
        except (LoadError, OSError) as error:
            _LOG.warning("%s cannot be told how far %s was proven: %s", path, self.field, error)
            return
        _LOG.info("%s now says %s", path, evidence)

    def _told(self, manifest: Manifest, evidence: ParityEvidence) -> Manifest:
        if self.field == "parity":
            return dataclasses.replace(manifest, parity=evidence)
        return dataclasses.replace(manifest, onnx_parity=evidence)


def places_of(path: Path) -> tuple[EvidencePlace, ...]:
    """Manifests that speak of a file: an engine's own, or those of engines beside their model."""
    return tuple(_engine_place(path) if is_engine(path) else _model_places(path))


def keep_evidence(manifest: Manifest, engine: Path) -> Manifest:
    """A manifest with what parity runs told the one it replaces of the same engine and model."""
    try:
        before = read_manifest(manifest_path(engine))
    except (LoadError, OSError):
        return manifest
    same_engine = (before.engine, before.plugin) == (manifest.engine, manifest.plugin)
    if same_engine and before.parity.suite is not None:
        manifest = dataclasses.replace(manifest, parity=before.parity)
    if before.onnx.sha256 == manifest.onnx.sha256:
        manifest = dataclasses.replace(manifest, onnx_parity=before.onnx_parity)
    return manifest


def _engine_place(engine: Path) -> Iterator[EvidencePlace]:
    try:
        yield EvidencePlace(engine, read_manifest(manifest_path(engine)), "parity")
    except LoadError:
        return  # whoever loads the engine says what is wrong with its manifest


def _model_places(model: Path) -> Iterator[EvidencePlace]:
    digest = ""
    for path in sorted(model.parent.glob("*.json")):
        if not is_engine(path):
            continue
        try:
            manifest = read_manifest(path)
            if manifest.onnx.path != model.name:
                continue
            digest = digest or model_digest(model)
        except (LoadError, OSError):
            continue
        if manifest.onnx.sha256 == digest:
            engine = path.with_name(path.name.removesuffix(".json"))
            yield EvidencePlace(engine, manifest, "onnx_parity")
