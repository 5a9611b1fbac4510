"""An engine on its way from TensorRT into a file, hashed as it passes.

TensorRT hands a finished engine over piece by piece. Written and hashed like this it is never in
memory as a whole, and is not read once more for its digest.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Self

from qkexport.engine.bindings import Bindings
from qkexport.errors import BuildError

if TYPE_CHECKING:
    import tensorrt as trt


@dataclasses.dataclass(frozen=True)
class EngineFile:
    """An engine that was written.

    Attributes:
        path: Where it lies.
        sha256: Digest of its bytes.
        size: Number of them.
    """

    path: Path
    sha256: str
    size: int


class HashingWriter:
    """Writes a file and hashes it on a second thread; neither holds Python's lock.

    One piece is hashed while the next one is made and written, so that two are in memory at most.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self._digest = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="qkexport-digest")
        self._hashed: Future[None] | None = None

    @functools.cached_property
    def _file(self) -> FileIO:
        """Opened by the first piece: a build that is killed before leaves no file behind."""
        return self._path.open("wb", buffering=0)  # pieces are large

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hasher.shutdown()
        self._file.close()

    def write(self, piece: bytes) -> None:
        """Appends to the file.

        Raises:
            OSError: The disk is full.
        """
        self._wait()
        self._hashed = self._hasher.submit(self._digest.update, piece)
        rest = memoryview(piece)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(piece)

    def finish(self) -> EngineFile:
        """What was written, once all of it is hashed."""
        self._wait()
        return EngineFile(self._path, self._digest.hexdigest(), self._size)

    def error(self, cause: OSError) -> BuildError:
        """What to say when the file cannot be written."""
        what = f"{cause.strerror} after {self._size} bytes"
        hint = f"make room in {self._path.parent}, or build into another folder."
        return BuildError(f"Engine must be written whole, got {what}.", hint=hint)

    def _wait(self) -> None:
        if self._hashed is not None:
            self._hashed.result()


class Receiver:
    """Takes pieces of an engine; what goes wrong is kept, because TensorRT would go on.

    TensorRT looks at no answer, and prints what is raised: the caller asks when it is done.
    """

    def __init__(self, writer: HashingWriter) -> None:
        self._writer = writer
        self._error: BaseException | None = None

    def take(self, piece: bytes) -> int:
        """Writes a piece and returns how much of it was written: all or nothing."""
        if self._error is not None:
            return 0
        try:
            self._writer.write(piece)
        except BaseException as error:  # raised again by `finish`
            self._error = error
            return 0
        return len(piece)

    def finish(self) -> EngineFile:
        """What was written.

        Raises:
            BuildError: The disk is full.
        """
        if isinstance(self._error, OSError):
            raise self._writer.error(self._error) from self._error
        if self._error is not None:
            raise self._error
        return self._writer.finish()


def make_stream(bindings: Bindings, receiver: Receiver) -> trt.IStreamWriter:
    """A stream for one build, of the flavour's own class."""

    class Stream(bindings.IStreamWriter):  # type: ignore[name-defined,misc,unused-ignore]
        def write(self, data: bytes) -> int:
            return receiver.take(data)

    return Stream()
