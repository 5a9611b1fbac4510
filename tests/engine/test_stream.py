"""Engines are hashed while they are written, and what goes wrong meanwhile is not lost."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from qkexport.engine.stream import HashingWriter, Receiver
from qkexport.errors import BuildError


def _pieces(*sizes: int) -> list[bytes]:
    return [bytes((place + size) % 251 for place in range(size)) for size in sizes]


@pytest.mark.parametrize("sizes", [(1,), (0, 59), (4096, 1, 257), (1_500_001, 97, 1_500_001)])
def test_the_digest_is_that_of_the_file(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    with HashingWriter(tmp_path / "engine") as writer:
        for piece in _pieces(*sizes):
            writer.write(piece)
        file = writer.finish()
    written = (tmp_path / "engine").read_bytes()
    assert written == b"".join(_pieces(*sizes))
    assert file.sha256 == hashlib.sha256(written).hexdigest()
    assert (file.path, file.size) == (tmp_path / "engine", sum(sizes))


def test_no_file_is_made_before_there_is_something_to_write(tmp_path: Path) -> None:
    with HashingWriter(tmp_path / "engine"):
        assert list(tmp_path.iterdir()) == []


def test_pieces_are_hashed_on_another_thread_than_they_are_written(tmp_path: Path) -> None:
    threads: list[str] = []

    class Digest:
        def update(self, piece: bytes) -> None:
            threads.append(threading.current_thread().name)

        def hexdigest(self) -> str:
            return ""

    with HashingWriter(tmp_path / "engine") as writer:
        writer._digest = Digest()  # type: ignore[assignment]
        writer.write(b"piece")
        writer.finish()
    assert len(threads) == 1
    assert threads[0].startswith("qkexport-digest")


def test_a_hash_that_fails_fails_the_build(tmp_path: Path) -> None:
    class Digest:
        def update(self, piece: bytes) -> None:
            raise MemoryError

    with HashingWriter(tmp_path / "engine") as writer:
        writer._digest = Digest()  # type: ignore[assignment]
        receiver = Receiver(writer)
        receiver.take(b"piece")
        with pytest.raises(MemoryError):
            receiver.finish()


def test_a_write_that_fails_is_told_at_the_end_and_nothing_follows_it(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, HashingWriter(tmp_path / "f") as writer:
        writer.__dict__["_file"] = full
        receiver = Receiver(writer)
        assert receiver.take(b"first") == 0
        writer.__dict__["_file"] = (tmp_path / "f").open("wb", buffering=0)
        assert receiver.take(b"second") == 0
        with pytest.raises(BuildError, match=r"written whole, got No space left .* after 0 bytes"):
            receiver.finish()
    assert (tmp_path / "f").read_bytes() == b""
