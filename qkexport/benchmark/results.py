"""What a benchmark measured, as values that serialize themselves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

PERCENTILES: Final = (50, 90, 99)


@dataclasses.dataclass(frozen=True)
class Latency:
    """Seconds of one run, over all runs.

    Attributes:
        minimum: The fastest run.
        mean: Of all runs.
        percentiles: Seconds within which so many percent of the runs were done.
        runs: How many.
    """

    minimum: float
    mean: float
    percentiles: Mapping[int, float]
    runs: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """The statistics of measured runs, of which there must be one."""
        ordered = sorted(seconds)
        count = len(ordered)
        ranks = {p: max(0, math.ceil(p / 100 * count) - 1) for p in PERCENTILES}  # nearest rank
        return cls(
            ordered[0],
            math.fsum(ordered) / count,
            {p: ordered[rank] for p, rank in ranks.items()},
            count,
        )

    @property
    def median(self) -> float:
        return self.percentiles[50]

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        named = {f"p{p}": value for p, value in self.percentiles.items()}
        return {"minimum": self.minimum, "mean": self.mean, **named, "runs": self.runs}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Latency:
        """Reads what `to_dict` made."""
        percentiles = {p: document[f"p{p}"] for p in PERCENTILES}
        return cls(document["minimum"], document["mean"], percentiles, document["runs"])


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one process measured.

    Attributes:
        load_seconds: Opening the model, libraries already imported.
        first_seconds: The first run, which allocates and warms up.
        latency: The runs after the warm-up.
        memory_bytes: What the process holds after the runs beyond what it held before the model.
        peak_bytes: The most that it held meanwhile, reading the file included.
        device_bytes: Memory of the GPU that was taken; None where there is none.
        notes: What a reader should know, for example emulation of a type.
    """

    load_seconds: float
    first_seconds: float
    latency: Latency
    memory_bytes: int
    peak_bytes: int
    device_bytes: int | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "load_seconds": self.load_seconds,
            "first_seconds": self.first_seconds,
            "latency": self.latency.to_dict(),
            "memory_bytes": self.memory_bytes,
            "peak_bytes": self.peak_bytes,
            "device_bytes": self.device_bytes,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Measurement:
        """Reads what `to_dict` made."""
        values = {**document, "latency": Latency.from_dict(document["latency"])}
        return cls(**{**values, "notes": tuple(document["notes"])})


@dataclasses.dataclass(frozen=True)
class ContenderResult:
    """One file on one backend.

    Attributes:
        source: As the user named it.
        backend: Who ran it.
        measurement: None if it did not run.
        reason: Why it did not.
        skipped: The backend is absent.
    """

    source: str
    backend: str
    measurement: Measurement | None = None
    reason: str = ""
    skipped: bool = False

    def __bool__(self) -> bool:
        return self.measurement is not None

    @property
    def verdict(self) -> str:
        """`RAN`, `SKIPPED` or `FAILED`; that it ran says nothing of what it computed."""
        if self.measurement is not None:
            return "RAN"
        return "SKIPPED" if self.skipped else "FAILED"


@dataclasses.dataclass(frozen=True)
class BenchResult:
    """A whole benchmark; true if every contender whose backend is here ran, and one did.

    Attributes:
        contenders: In the order they were named; the first that ran is what others are held to.
        shapes: Shape of each input.
        absent: Required backends that are not here.
        threads: Threads of each process.
        environment: Versions and machine.
    """

    contenders: tuple[ContenderResult, ...]
    shapes: Mapping[str, tuple[int, ...]]
    absent: tuple[str, ...]
    threads: int
    environment: Mapping[str, str]

    def __bool__(self) -> bool:
        tried = [contender for contender in self.contenders if not contender.skipped]
        return bool(tried) and all(tried) and not self.absent

    @property
    def baseline(self) -> ContenderResult | None:
        """What the others are held to: the first that ran."""
        return next(filter(None, self.contenders), None)

    def speedup(self, contender: ContenderResult) -> float | None:
        """How many times the baseline's median a contender's is faster; None if it did not run."""
        if self.baseline is None or not contender:
            return None
        base, own = (each.measurement for each in (self.baseline, contender))
        assert base is not None  # both ran
        assert own is not None
        return base.latency.median / own.latency.median if own.latency.median else None

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "passed": bool(self),
            "inputs": {name: list(shape) for name, shape in self.shapes.items()},
            "threads": self.threads,
            "contenders": [
                {
                    "file": each.source,
                    "backend": each.backend,
                    "verdict": each.verdict,
                    "reason": each.reason,
                    "speedup": self.speedup(each),
                    **({} if each.measurement is None else each.measurement.to_dict()),
                }
                for each in self.contenders
            ],
            "absent": list(self.absent),
            "environment": dict(self.environment),
        }
