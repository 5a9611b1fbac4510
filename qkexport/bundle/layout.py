"""What lies where in a bundle; the folder appears whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from qkexport.bundle.readme import readme_text, serve_script
from qkexport.bundle.triton import ServedModel, write_triton_model
from qkexport.engine.plugin_library import find_plugin_library
from qkexport.engine.verify import verify_files, verify_plugin
from qkexport.errors import UsageError
from qkexport.files import link_or_copy, remove_abandoned_folders, sha256_of
from qkexport.manifest import Manifest, manifest_path

SCHEMA_VERSION: Final = 1
INDEX: Final = "bundle.json"
_WORD: Final = re.compile(r"\w[\w.+-]*")
_FILES: Final = Path(__file__).parent / "files"


@dataclasses.dataclass(frozen=True)
class BundleResult:
    """A bundle that was written.

    Attributes:
        folder: Where it is.
        models: Names under which Triton serves the models.
        files: Digest by path inside the folder.
    """

    folder: Path
    models: tuple[str, ...]
    files: dict[str, str]

    def to_document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {"folder": str(self.folder), "models": list(self.models), "files": self.files}


def write_bundle(folder: Path, engines: Sequence[Path]) -> BundleResult:
    """Collects engines with all that a server needs to run them.

    Args:
        folder: New, empty, or an earlier bundle, which is replaced.
        engines: With their manifests beside them; those of one model are served as one.

    Raises:
        UsageError: The folder holds something else, or the engines do not fit together.
        LoadError: An engine is not as it was built, or was built with another plugin library.
        BackendUnavailableError: Engines need the plugin library, which is not installed here.
    """
    _check_free(folder)
    models = _served_models({engine: verify_files(engine) for engine in engines})
    with _replacing(folder) as temporary:
        plugin = _copy_plugin(models, temporary)
        for model in models:
            _copy_engines(model, temporary / "engines")
            write_triton_model(model, temporary / "triton" / model.name)
        shutil.copytree(_FILES / "cpp", temporary / "cpp")
        (temporary / "README.md").write_text(readme_text(models, plugin))
        script = temporary / "serve.sh"
        script.write_text(serve_script(plugin))
        script.chmod(0o755)
        files = _digests(temporary)
        names = tuple(model.name for model in models)
        index = {"schema_version": SCHEMA_VERSION, "models": list(names), "files": files}
        (temporary / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    return BundleResult(folder, names, files)


def _served_models(manifests: dict[Path, Manifest]) -> list[ServedModel]:
    """Engines by model; the engines of one model differ in their targets alone."""
    models: dict[str, dict[Path, Manifest]] = {}
    for engine, manifest in manifests.items():
        models.setdefault(Path(manifest.onnx.path).stem, {})[engine] = manifest
    for engine in manifests:
        if not _WORD.fullmatch(engine.name):
            message = f"Engines of a bundle must have names that are words, got {engine.name!r}."
            raise UsageError(message, hint="build again into a file without spaces and signs.")
    for name, members in models.items():
        if not _WORD.fullmatch(name):
            message = f"Model must have a name that can be a folder and a word, got {name!r}."
            raise UsageError(message, hint="rename the .onnx file and build again.")
        kinds = {(m.onnx.sha256, m.runtime, m.version, m.plugin) for m in members.values()}
        if len(kinds) > 1:
            message = f"Engines of model {name} must come from one model and runtime"
            raise UsageError(f"{message}, got {len(kinds)} kinds.")
    return [ServedModel(name, members) for name, members in sorted(models.items())]


def _copy_plugin(models: Sequence[ServedModel], folder: Path) -> str | None:
    """Copies the plugin library that engines need, and returns its place in the bundle.

    It is the library of this installation, whatever path a manifest names: a bundle preloads it,
    and whoever can forge a manifest could have any library run on the server.
    """
    records = {model.manifest.plugin for model in models} - {None}
    if not records:
        return None
    if len(records) > 1:
        raise UsageError(f"Engines of a bundle must share a plugin, got {len(records)}.")
    library = find_plugin_library()
    for model in models:
        verify_plugin(model.manifest, library)
    target = folder / "plugin" / library.name
    target.parent.mkdir(parents=True)
    shutil.copyfile(library, target)
    return str(target.relative_to(folder))


def _copy_engines(model: ServedModel, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for engine in model.engines:
        target = folder / engine.name
        if target.exists():
            raise UsageError(f"Engines of a bundle must have different names, got {engine.name}.")
        link_or_copy(engine, target)
        shutil.copyfile(manifest_path(engine), manifest_path(target))


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}


def _check_free(folder: Path) -> None:
    taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken and not (folder / INDEX).is_file():
        message = f"Bundle must go into a new folder or replace a bundle, got {folder}."
        raise UsageError(message, note=f"a bundle holds a {INDEX}.")


@contextlib.contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends well."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned_folders(folder.parent)
    temporary = folder.with_name(f".{os.getpid()}.{folder.name}.partial")
    old = folder.with_name(f".{os.getpid()}.{folder.name}.old.partial")
    temporary.mkdir()
    try:
        yield temporary
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
