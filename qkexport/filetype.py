"""Which kind of file a source is, told without unpickling or importing anything from it."""

from __future__ import annotations

import enum
import zipfile
import zlib
from pathlib import Path
from typing import Final

from qkexport.errors import LoadError
from qkexport.pickle_scan import PickleScan, scan_pickle

ACCEPTED: Final = (
    "accepted are .onnx, .pt2 (torch.export.save), package.module:factory, a Hugging Face folder, "
    "and with --allow-pickle a .pt/.pth that holds a whole nn.Module."
)
_ZIP_MAGIC: Final = b"PK\x03\x04"
_PICKLE_MAGIC: Final = b"\x80"
_MOST_UNPACKED: Final = 20  # times the size of the file; JSON packs to a tenth
_ALWAYS_UNPACKED: Final = 1 << 24  # a small archive may be anything
_LFS_MAGIC: Final = b"version https://git-lfs"


class FileKind(enum.StrEnum):
    """Kinds of source that can be read; the others are refused by `identify`."""

    ONNX = "ONNX model"
    PT2 = "exported program"
    PICKLED = "pickled object"


def identify(path: Path, *, allow_pickle: bool = False) -> FileKind:
    """Tells what a file holds from its first bytes, its zip listing and its pickle opcodes.

    Args:
        path: An existing file.
        allow_pickle: Whether a pickled module may be returned; nothing is unpickled here either
            way.

    Raises:
        LoadError: The file is damaged, holds no model, or needs a permission it was not given.
    """
    with path.open("rb") as stream:
        head = stream.read(len(_LFS_MAGIC))
    if not head:
        raise _refuse(path, "must hold a model", "an empty file", "save or download it again.")
    if head == _LFS_MAGIC:
        hint = "fetch the real file with: git lfs pull"
        raise _refuse(path, "must hold a model", "a Git LFS pointer", hint)
    if head.startswith(_ZIP_MAGIC):
        return _identify_zip(path, allow_pickle)
    if head.startswith(_PICKLE_MAGIC):
        with path.open("rb") as stream:
            return _judge_pickle(path, _scan(path, stream), allow_pickle)
    if path.suffix == ".onnx":
        return FileKind.ONNX
    raise _refuse_unknown(path)


def _identify_zip(path: Path, allow_pickle: bool) -> FileKind:
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_bomb(path, archive)
            names = archive.namelist()
            inner = {name.partition("/")[2] or name for name in names}
            if "archive_format" in inner or "serialized_exported_program.json" in names:
                return FileKind.PT2
            if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
                raise _refuse_torchscript(path)
            records = [name for name in names if name.endswith("/data.pkl")]
            if not records:
                raise _refuse_unknown(path)
            with archive.open(records[0]) as stream:
                return _judge_pickle(path, _scan(path, stream), allow_pickle)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _refuse_damaged(path, f"a damaged zip archive ({error})") from None


def _refuse_bomb(path: Path, archive: zipfile.ZipFile) -> None:
    """Torch stores its records as they are; what unpacks to many times the file was made to."""
    unpacked = sum(record.file_size for record in archive.infolist())
    if unpacked > _MOST_UNPACKED * path.stat().st_size + _ALWAYS_UNPACKED:
        value = f"an archive that unpacks to {unpacked / 1e6:.0f} MB"
        raise _refuse(path, "must not be a zip bomb", value, "do not load it.")


def _scan(path: Path, stream: object) -> PickleScan:
    try:
        return scan_pickle(stream)  # type: ignore[arg-type]  # ZipExtFile is an IO[bytes]
    except (ValueError, UnicodeDecodeError) as error:
        raise _refuse_damaged(path, f"a damaged pickle ({error})") from None


def _judge_pickle(path: Path, scan: PickleScan, allow_pickle: bool) -> FileKind:
    if scan.holds_only_tensors:
        raise _refuse_state_dict(path)
    if allow_pickle:
        return FileKind.PICKLED
    if scan.commands:
        rule = "must not run commands when it is read"
        value = f"a pickle that calls {', '.join(scan.commands)}"
        raise _refuse(path, rule, value, "do not load it; --allow-pickle would run these calls.")
    message = f"Source {path} is only unpickled with --allow-pickle, got {_classes(scan)}."
    raise LoadError(
        message,
        note="unpickling runs code chosen by whoever wrote the file; nothing was unpickled.",
        hint="pass --allow-pickle if you trust it, or save a .pt2 with torch.export.save.",
    )


def _classes(scan: PickleScan) -> str:
    own = [name for name in scan.imports if not name.startswith(("torch.", "collections."))]
    shown = (own or list(scan.imports))[:3]
    return f"a pickled object of {', '.join(shown)}"


def _refuse(path: Path, rule: str, value: str, hint: str) -> LoadError:
    return LoadError(f"Source {path} {rule}, got {value}.", note=ACCEPTED, hint=hint)


def _refuse_damaged(path: Path, value: str) -> LoadError:
    return _refuse(path, "must be a complete file", value, "save or download it again.")


def _refuse_unknown(path: Path) -> LoadError:
    value = f"an unknown file type ({path.suffix or 'no suffix'})"
    if path.suffix == ".safetensors":
        return _refuse_state_dict(path)
    return _refuse(path, "must hold a model", value, "export it with torch.export.save.")


def _refuse_state_dict(path: Path) -> LoadError:
    return _refuse(
        path,
        "must hold a whole model",
        "a state_dict, which is tensors without the module that uses them",
        "write a factory that builds the module and calls load_state_dict, then convert "
        "package.module:factory.",
    )


def _refuse_torchscript(path: Path) -> LoadError:
    return _refuse(
        path,
        "must be an exported program or module",
        "a TorchScript archive, which torch.export cannot read",
        "go back to the Python module: convert package.module:factory, or torch.export.save it.",
    )
