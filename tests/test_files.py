"""Files that are whole or not there."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qkexport.files import sha256_of, write_whole, writing


def test_parts_are_written_one_after_the_other(tmp_path: Path) -> None:
    write_whole(tmp_path / "deep" / "file", [b"ab", memoryview(b"cd")])
    assert (tmp_path / "deep" / "file").read_bytes() == b"abcd"


def test_who_reads_the_old_file_goes_on_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_whole(path, [b"new"])
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail_halfway() -> None:
        with writing(path) as temporary:
            temporary.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert [item.read_bytes() for item in tmp_path.iterdir()] == [b"old"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import os, signal, pathlib\n"
        "from qkexport.files import writing\n"
        f"with writing(pathlib.Path({str(path)!r})) as temporary:\n"
        "    temporary.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    write_whole(path, [b"new"])
    assert [item.read_bytes() for item in tmp_path.iterdir()] == [b"new"]


def test_the_temporary_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / f".file.{os.getppid()}.partial"
    other.write_bytes(b"in work")
    write_whole(tmp_path / "file", [b"mine"])
    assert other.exists()


def test_files_with_similar_names_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / ".file.more.999999999.partial"
    other.write_bytes(b"of file.more")
    write_whole(tmp_path / "file", [b"mine"])
    assert other.exists()


def test_the_digest_covers_all_files_in_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a" * 1_500_000)
    two.write_bytes(b"b")
    assert sha256_of(one, two) == hashlib.sha256(b"a" * 1_500_000 + b"b").hexdigest()
