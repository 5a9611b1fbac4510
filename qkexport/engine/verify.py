"""Whether an engine may be loaded here: asked of its manifest, before TensorRT sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qkexport.engine.bindings import Bindings, Flavour
from qkexport.engine.device import Gpu
from qkexport.engine.header import read_header
from qkexport.engine.targets import runs_on
from qkexport.errors import LoadError
from qkexport.files import sha256_of
from qkexport.manifest import Manifest, manifest_path, read_manifest
from qkexport.missing_file import require_file


def verify_files(engine: Path) -> Manifest:
    """The manifest of an engine whose bytes are those that were built.

    Raises:
        LoadError: Engine or manifest is missing, changed, or they contradict each other.
    """
    require_file("Engine", engine)
    manifest = read_manifest(manifest_path(engine))
    found = sha256_of(engine)
    if found != manifest.engine.sha256:
        message = f"Engine {engine.name} must have the digest in its manifest, got {found[:12]}."
        note = f"the manifest says {manifest.engine.sha256[:12]}."
        raise LoadError(message, note=note, hint="copy both files again, or build again.")
    _check_header(engine, manifest)
    return manifest


def verify_engine(engine: Path, bindings: Bindings, gpu: Gpu) -> Manifest:
    """The manifest of an engine that this runtime and GPU can load.

    Raises:
        LoadError: The files are not as built, or were built for another version, GPU or plugin.
    """
    manifest = verify_files(engine)
    name = engine.name
    if bindings.__version__ != manifest.version and not manifest.options.get("version_compatible"):
        message = f"Engine {name} must be loaded by {manifest.runtime} {manifest.version}"
        raise LoadError(f"{message}, got {bindings.__version__}.", hint="build it again here.")
    if not runs_on(gpu.target, manifest.targets):
        message = f"Engine {name} must run on {', '.join(manifest.targets)}, got {gpu.target}."
        hint = f"build it again with --target {gpu.target}."
        raise LoadError(message, note=f"the GPU here is {gpu.name}.", hint=hint)
    return manifest


def verify_plugin(manifest: Manifest, library: Path) -> None:
    """Checks that a plugin library is the one the engine was built with.

    Raises:
        LoadError: It is another one.
    """
    if manifest.plugin is None:
        return
    found = sha256_of(library)
    if found != manifest.plugin.sha256:
        message = f"Plugin library must be the one the engine was built with, got {library}."
        note = f"digest {found[:12]} instead of {manifest.plugin.sha256[:12]}."
        hint = "set QKEXPORT_LIBRARY_DIR to the folder of that library, or build the engine again."
        raise LoadError(message, note=note, hint=hint)


def _check_header(engine: Path, manifest: Manifest) -> None:
    header = read_header(engine)
    if header is None:
        return  # the full TensorRT's engines are opaque
    told = (manifest.runtime, manifest.version, manifest.targets)
    if told != (Flavour.TENSORRT_RTX, header.version, header.targets):
        message = f"Manifest of {engine.name} must say what the engine says, got {_text(*told)}."
        note = f"the engine is of {_text(Flavour.TENSORRT_RTX, header.version, header.targets)}."
        raise LoadError(message, note=note, hint="build the engine again.")


def _text(runtime: str, version: str, targets: Sequence[str]) -> str:
    return f"{runtime} {version} for {', '.join(targets)}"
