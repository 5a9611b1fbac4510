"""Kernel timings of another TensorRT or GPU are thrown away, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkexport.engine.timing_cache import read_timings, write_timings

KEY = {"tensorrt": "11.4.0.106", "gpu": "an Ada GPU"}
TIMINGS = b"\x00\n\xffbinary\n"


def test_timings_come_back_as_they_were(tmp_path: Path) -> None:
    write_timings(tmp_path / "timings", KEY, TIMINGS)
    assert read_timings(tmp_path / "timings", KEY) == TIMINGS


def test_a_cache_that_is_not_there_is_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_timings(tmp_path / "timings", KEY) == b""
    assert caplog.text == ""


@pytest.mark.parametrize("change", [{"tensorrt": "11.5.0.1"}, {"gpu": "another GPU"}])
def test_a_stale_cache_starts_anew_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, str]
) -> None:
    write_timings(tmp_path / "timings", KEY, TIMINGS)
    assert read_timings(tmp_path / "timings", {**KEY, **change}) == b""
    assert "starting a new one" in caplog.text


@pytest.mark.parametrize("contents", [b"", b"\x00\x01\x02", b"{}", b"qkexport timing cache\n"])
def test_a_file_that_is_no_timing_cache_starts_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, contents: bytes
) -> None:
    (tmp_path / "timings").write_bytes(contents)
    assert read_timings(tmp_path / "timings", KEY) == b""
    assert "starting a new one" in caplog.text
