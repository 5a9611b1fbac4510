"""`model.engine.json`: what an engine was built from, for whom and how, beside the engine.

TensorRT refuses an engine of another version or GPU with obscure words, or worse. The manifest
says these things first, and a loader checks them before TensorRT sees a byte of the engine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from qkexport.errors import LoadError
from qkexport.files import write_whole
from qkexport.missing_file import require_file
from qkexport.typed_json import from_json

SCHEMA_VERSION: Final = 1
_SUFFIX: Final = ".json"
_DIGEST: Final = "manifest_sha256"
_LARGEST: Final = 1 << 26  # bytes; the manifest of a model of thousands of inputs has some 100 KB
_FILE_NAME: Final = re.compile(r"[^/\x00-\x1f\x7f]{1,255}")
_NAME: Final = re.compile(r"(?!\.)[^/\s\"'`$\\;&|<>]+")


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """A file by name and contents."""

    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class TensorRecord:
    """An input or output of the engine; unknown dimensions are -1."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ParityEvidence:
    """How far a file was proven, by whom and with what.

    Attributes:
        tier: `CONVERTED` or `BUILT` (it exists), `RAN`, or `MATCHED` (its outputs were compared and
            lie within the tolerance).
        reason: What was seen, or why the tier is no higher.
        backend: Who ran it.
        reference: The model that it was held against.
        suite: Which inputs.
        seed: That draws them again.
    """

    tier: str
    reason: str
    backend: str | None = None
    reference: str | None = None
    suite: str | None = None
    seed: int | None = None

    def __str__(self) -> str:
        run = f"({self.backend}, suite {self.suite}, seed {self.seed})"
        return f"{self.tier}{run if self.suite else ''}: {self.reason}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is known about one engine.

    Attributes:
        engine: The engine file, by name, in the folder of the manifest.
        onnx: The model it was built from; the digest covers its external data.
        plugin: The plugin library it needs, or None.
        op_version: Version of QKNormAttention in the model; None when it has none.
        attention: `plugin` or `native`; None without QKNormAttention.
        runtime: `tensorrt` or `tensorrt-rtx`.
        version: Of the runtime.
        targets: Compute capabilities that the engine runs on.
        profiles: Minimum, optimum and maximum shape by input name, for each profile.
        precision: Types of the floating-point inputs and outputs; TensorRT is strongly typed.
        inputs: What the engine takes.
        outputs: What it returns.
        num_layers: Layers of the network.
        options: Build options.
        parity: How far the engine itself was proven; `qkexport parity` raises or lowers it.
        onnx_parity: How far the model it was built from was; None where nobody asked.
        created_by: Version of qkexport.
    """

    engine: FileRecord
    onnx: FileRecord
    plugin: FileRecord | None
    op_version: int | None
    attention: str | None
    runtime: str
    version: str
    targets: tuple[str, ...]
    profiles: tuple[dict[str, tuple[tuple[int, ...], ...]], ...]
    precision: tuple[str, ...]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    num_layers: int
    options: dict[str, Any]
    parity: ParityEvidence
    onnx_parity: ParityEvidence | None = None
    created_by: str

    def to_document(self) -> dict[str, Any]:
        """The manifest as JSON, with a digest over everything else in it."""
        document = {"schema_version": SCHEMA_VERSION, **json.loads(_canonical(self))}
        return {**document, _DIGEST: _digest(document)}


def manifest_path(engine: Path) -> Path:
    """Where the manifest of an engine lies."""
    return engine.with_name(f"{engine.name}{_SUFFIX}")


def manifest_text(manifest: Manifest) -> str:
    """The contents of the manifest file."""
    return json.dumps(manifest.to_document(), indent=2) + "\n"


def write_manifest(engine: Path, manifest: Manifest) -> None:
    """Puts a manifest beside its engine in one step."""
    write_whole(manifest_path(engine), [manifest_text(manifest).encode()])


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest.

    Raises:
        LoadError: The file is missing, is no manifest, or was changed after it was written.
    """
    if not path.is_file():
        require_file("Engine", path.with_name(path.name.removesuffix(_SUFFIX)))
        message = f"Engine must have its manifest beside it, got no file {path}."
        raise LoadError(message, hint="copy it along with the engine, or build again.")
    try:
        document = json.loads(_text(path))
        written = document.pop(_DIGEST)
        manifest = _from_document(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"Manifest {path.name} must be one that qkexport build wrote, got {error!r}."
        raise LoadError(message, hint="build the engine again.") from error
    if written != _digest(document):
        message = f"Manifest {path.name} must be as it was written, got another digest."
        raise LoadError(message, hint="restore it, or build the engine again.")
    return manifest


def _text(path: Path) -> str:
    if (size := path.stat().st_size) > _LARGEST:
        raise ValueError(f"{size} bytes")
    return path.read_text()


def _canonical(value: Any) -> str:
    fields = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(document).encode()).hexdigest()


def _from_document(document: dict[str, Any]) -> Manifest:
    fields = dict(document)
    version = fields.pop("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema version {version}, this qkexport reads {SCHEMA_VERSION}")
    manifest: Manifest = from_json(Manifest, fields, "manifest")
    _check_names(manifest)
    _check_profiles(manifest)
    return manifest


def _check_names(manifest: Manifest) -> None:
    """Names that become files and words of scripts must be nothing but names."""
    for record in (manifest.engine, manifest.onnx):
        if not _FILE_NAME.fullmatch(record.path) or record.path in (".", ".."):
            raise ValueError(f"file {record.path[:60]!r}")
    names = {"runtime": manifest.runtime}
    if manifest.plugin is not None:
        names["plugin"] = Path(manifest.plugin.path).name
    names |= {f"target {place}": target for place, target in enumerate(manifest.targets)}
    for kind, name in names.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{kind} {name[:60]!r}")


def _check_profiles(manifest: Manifest) -> None:
    """Each profile gives a minimum, an optimum and a maximum of every input that varies."""
    for number, profile in enumerate(manifest.profiles):
        for name, shapes in profile.items():
            if len(shapes) != 3 or len({len(shape) for shape in shapes}) != 1:
                raise ValueError(f"profile {number} of {name[:60]!r}")
        for tensor in manifest.inputs:
            shapes = profile.get(tensor.name, ())
            if -1 in tensor.shape and len(next(iter(shapes), ())) != len(tensor.shape):
                raise ValueError(f"profile {number} without {tensor.name[:60]!r}")
