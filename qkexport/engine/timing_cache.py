"""Kernel timings kept from build to build, with a key that says what they are timings of."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qkexport.engine.bindings import Flavour
from qkexport.engine.device import find_gpu
from qkexport.files import write_whole

if TYPE_CHECKING:
    import tensorrt as trt

    from qkexport.engine.compile import Job

_LOG: Final = logging.getLogger(__name__)
_MAGIC: Final = b"qkexport timing cache\n"


@dataclasses.dataclass(frozen=True)
class TimingCache:
    """The cache of one build.

    Attributes:
        path: Its file; None where there is none to keep.
        key: TensorRT version and GPU; timings of anything else are thrown away.
    """

    path: Path | None
    key: dict[str, Any]

    @classmethod
    def load(cls, job: Job, version: str, config: trt.IBuilderConfig) -> TimingCache:
        """Gives a build the timings in the file, or an empty cache if they are stale.

        Args:
            job: Names the file. TensorRT-RTX times nothing, so it has no cache.
            version: Of TensorRT.
            config: Receives the cache.
        """
        path = job.options.timing_cache if job.flavour is Flavour.TENSORRT else None
        gpu = find_gpu()
        key = {"tensorrt": version, "gpu": gpu.name if gpu else None}
        if path is not None:
            timings = read_timings(path, key)
            config.set_timing_cache(config.create_timing_cache(timings), ignore_mismatch=False)
        return cls(path, key)

    def save(self, config: trt.IBuilderConfig) -> None:
        """Writes what the build added."""
        if self.path is not None:
            timings = bytes(config.get_timing_cache().serialize())
            write_timings(self.path, self.key, timings)


def read_timings(path: Path, key: dict[str, Any]) -> bytes:
    """Timings of a file; empty, with a warning, when they belong to something else."""
    if not path.exists():
        return b""
    head, _, timings = path.read_bytes().removeprefix(_MAGIC).partition(b"\n")
    try:
        found = json.loads(head)
    except ValueError:
        found = None
    if found == key:
        return timings
    _LOG.warning("timing cache %s is of %s, not of %s: starting a new one", path, found, key)
    return b""


def write_timings(path: Path, key: dict[str, Any], timings: bytes) -> None:
    """Writes timings with their key."""
    write_whole(path, [_MAGIC, json.dumps(key).encode(), b"\n", timings])
