"""One run: candidates one after the other, each on the same cases, answers computed once."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence

import torch

from qkexport.compare.block import row_errors
from qkexport.compare.scan import as_rows, chunks
from qkexport.proof.candidate import Candidate, Cases, ParitySettings, run_candidate
from qkexport.proof.cases import Case
from qkexport.proof.prepare import Prepared, Refused, as_they_are, prepare
from qkexport.proof.reference import Reference
from qkexport.proof.results import CandidateResult, PairDifference
from qkexport.proof.spool import Spool
from qkexport.run.free_memory import release_free_memory
from qkexport.trial import Trial


class Run:
    """The state of one run: prepared cases on disk, time spent, cases that were refused.

    Use as a context manager: leaving it deletes what is on disk.

    Args:
        reference: The model that is right.
        cases: What is tried.
        settings: How candidates are judged.
    """

    def __init__(
        self,
        reference: Reference,
        cases: Sequence[Case | Trial | Mapping[str, torch.Tensor]],
        settings: ParitySettings,
    ) -> None:
        self.reference = reference
        self.seconds: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self._cases = cases
        self.settings = settings
        self._spool = Spool()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def candidate(self, candidate: Candidate, *, keep: bool, stop: bool = False) -> CandidateResult:
        """Runs one candidate.

        Args:
            candidate: What is judged.
            keep: Keep answers and outputs on disk for the next candidate.
            stop: Stop at the first case that fails, and keep no outputs.
        """
        return run_candidate(
            self.reference,
            candidate,
            self._prepared(keep=keep),
            len(self._cases),
            self.settings,
            self.seconds,
            self._spool if keep and not stop else None,
            stop=stop,
        )

    def case(self, label: str) -> Prepared | None:
        """A case that was kept, by its label."""
        return self._spool.find_case(label)

    def prepared(self) -> Iterator[Prepared]:
        """The cases again, from disk where they were kept."""
        return self._prepared(keep=True)(None)

    def _prepared(self, *, keep: bool) -> Cases:
        def cases(rounded_to: torch.dtype | None) -> Iterator[Prepared]:
            for index, case in enumerate(self._cases):
                with contextlib.suppress(Refused):
                    yield self._one(index, case, rounded_to, keep=keep)

        return cases

    def _one(
        self,
        index: int,
        case: Case | Trial | Mapping[str, torch.Tensor],
        rounded_to: torch.dtype | None,
        *,
        keep: bool,
    ) -> Prepared:
        key = f"case {index} {rounded_to}"
        stored = self._spool.read_case(key)
        if stored is not None:
            return stored
        store = functools.partial(self._spool.keep, key) if keep else as_they_are
        try:
            prepared = prepare(self.reference, case, rounded_to, self.seconds, store)
        except Refused as refusal:
            self.refused[getattr(case, "label", "given")] = str(refusal)
            raise
        if keep:
            self._spool.write_case(key, prepared)
            release_free_memory()
        return prepared

    def differences(self, results: Sequence[CandidateResult]) -> tuple[PairDifference, ...]:
        """Largest distance between each two candidates, output by output."""
        found: dict[tuple[str, str, str], float] = {}
        ran = [
            result
            for result in results
            if any(case.comparison is not None for case in result.cases)
        ]
        for i, left in enumerate(ran):
            for right in ran[i + 1 :]:
                for case in left.cases:
                    self._difference(left, right, case.label, found)
        return tuple(PairDifference(*names, value) for names, value in found.items())

    def _difference(
        self,
        left: CandidateResult,
        right: CandidateResult,
        label: str,
        found: dict[tuple[str, str, str], float],
    ) -> None:
        keys = [f"{result.name} {result.backend} {label}" for result in (left, right)]
        if not all(key in self._spool for key in keys):
            return
        ours, theirs = map(self._spool.read, keys)
        for name in ours.keys() & theirs.keys():
            if ours[name].shape != theirs[name].shape or not ours[name].numel():
                continue
            names = (f"{left.name} [{left.backend}]", f"{right.name} [{right.backend}]", name)
            distance = _distance(ours[name], theirs[name])
            found[names] = max(found.get(names, 0.0), distance)


def _distance(x: torch.Tensor, y: torch.Tensor) -> float:
    blocks = chunks(as_rows(x), as_rows(y))
    return max(float(row_errors(a, b).max()) for a, b in blocks if a is not None and b is not None)
