"""Runs one candidate on one backend through all cases."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import torch

from qkexport.compare import Comparison, NoiseEffects, Rules, Tolerance, compare_outputs
from qkexport.errors import BackendUnavailableError, QkexportError
from qkexport.progress import log_share, part
from qkexport.proof.pairing import Pairing, pair
from qkexport.proof.prepare import Prepared
from qkexport.proof.reference import Reference
from qkexport.proof.replay import Replay, save_replay
from qkexport.proof.results import CandidateResult, CaseResult
from qkexport.proof.spool import Spool
from qkexport.run import open_runner
from qkexport.run.runner import Runner, Tensors

_LOG: Final = logging.getLogger(__name__)
_NO_CASE: Final = "The reference runs none of the inputs that were tried: nothing was compared."

# Yields the cases of the run, prepared for inputs rounded to a type.
Cases = Callable[[torch.dtype | None], Iterator[Prepared]]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Something to judge.

    Attributes:
        name: In reports; the file as the user named it.
        backend: Who runs it.
        open: Loads it.
    """

    name: str
    backend: str
    open: Callable[[], Runner]

    @classmethod
    def of_file(cls, path: Path, backend: str) -> Candidate:
        """A file on a backend."""
        return cls(str(path), backend, lambda: open_runner(path, backend))


@dataclasses.dataclass(frozen=True)
class ParitySettings:
    """How candidates are judged.

    Attributes:
        rtol: Replaces the derived tolerance.
        atol: Likewise.
        declared: Candidate name to reference name.
        allow_constant: Outputs whose reference may be constant in every case.
        ignore_extra: Candidate outputs that the reference need not have.
        ignore_missing: Reference outputs that the candidate need not have.
        logits: Outputs whose argmax is compared, besides those that look like logits.
        failures: Where failing inputs are saved; None saves none.
    """

    rtol: float | None = None
    atol: float | None = None
    declared: Mapping[str, str] = dataclasses.field(default_factory=dict)
    allow_constant: frozenset[str] = frozenset()
    ignore_extra: frozenset[str] = frozenset()
    ignore_missing: frozenset[str] = frozenset()
    logits: frozenset[str] = frozenset()
    failures: Path | None = None


def run_candidate(
    reference: Reference,
    candidate: Candidate,
    cases: Cases,
    count: int,
    settings: ParitySettings,
    seconds: dict[str, float],
    spool: Spool | None = None,
    *,
    stop: bool = False,
) -> CandidateResult:
    """Runs a candidate through the cases; whatever goes wrong with it is its result.

    Args:
        reference: The model that is right.
        candidate: What is judged.
        cases: The inputs, with the reference's answers.
        count: How many cases there are; the reference may refuse some.
        settings: How it is judged.
        seconds: Time spent is added under `loading`, `candidates`, `compare` and `noise`.
        spool: Where its outputs are kept for the comparison of candidates; None keeps none.
        stop: Stop at the first case that fails.
    """
    known = CandidateResult(candidate.name, candidate.backend)
    start = time.perf_counter()
    try:
        runner = candidate.open()
    except BackendUnavailableError as error:
        return dataclasses.replace(known, skipped=True, reason=str(error))
    except QkexportError as error:
        return dataclasses.replace(known, reason=str(error))
    finally:
        seconds["loading"] = seconds.get("loading", 0.0) + time.perf_counter() - start
    try:
        pairing = pair(reference, runner, settings.declared)
        judge = _Judge(reference, candidate.name, runner, pairing, settings, seconds, spool)
        results = judge.run_all(cases(judge.input_rounding), count, stop=stop)
    except QkexportError as error:
        return dataclasses.replace(known, reason=str(error))
    finally:
        runner.close()
    return dataclasses.replace(
        known,
        cases=results,
        reason="" if results else _NO_CASE,
        untested=_untested(results, settings.allow_constant),
        notes=(*runner.notes, *pairing.notes),
    )


def _untested(results: tuple[CaseResult, ...], allowed: frozenset[str]) -> tuple[str, ...]:
    """Outputs that no case tested."""
    ran = [case for case in results if case.comparison is not None]
    names = {name for case in ran for name in case.vacuous} - allowed
    return tuple(sorted(name for name in names if all(_tests_nothing(name, case) for case in ran)))


def _tests_nothing(name: str, case: CaseResult) -> bool:
    """True where an output is vacuous; one element varies with nothing, where others have more."""
    shape = next((output.shape for output in case.outputs if output.name == name), None)
    return name in case.vacuous or (shape is not None and math.prod(shape) == 1)


def _blind(comparison: Comparison) -> dict[str, str]:
    return {o.name: "is lost in PyTorch's own rounding" for o in comparison.outputs if o.blind}


@dataclasses.dataclass(frozen=True)
class _Judge:
    reference: Reference
    name: str
    runner: Runner
    pairing: Pairing
    settings: ParitySettings
    seconds: dict[str, float]
    spool: Spool | None

    @property
    def input_rounding(self) -> torch.dtype | None:
        """The type that inputs are rounded to because the candidate takes them narrower."""
        own = {info.name: info.dtype for info in self.runner.inputs}
        for info in self.reference.inputs:
            dtype = own[self.pairing.inputs[info.name]]
            if dtype.is_floating_point and dtype != info.dtype:
                return dtype
        return None

    def run_all(
        self, cases: Iterable[Prepared], count: int, *, stop: bool
    ) -> tuple[CaseResult, ...]:
        results = []
        for index, case in enumerate(cases):
            with part(index, count):
                results.append(self.run(case))
            del case  # before the next one is made ready
            if stop and not results[-1]:
                break
        return tuple(results)

    def run(self, case: Prepared) -> CaseResult:
        log_share(_LOG, 0.0, "parity: %s on %s, %s", self.name, self.runner.backend, case.label)
        shapes = {name: tuple(x.shape) for name, x in case.inputs.items()}
        known = CaseResult(case.label, shapes, case.seed, None, case.vacuous)
        start = time.perf_counter()
        try:
            found = self.runner.run(self.pairing.feeds(case.inputs))
        except QkexportError as error:
            failed = dataclasses.replace(known, error=str(error))
            return self._saved(failed, case)
        ran, noise = time.perf_counter(), self.seconds.get("noise", 0.0)
        comparison = self._compare(case, found)
        result = dataclasses.replace(
            known,
            seconds=ran - start,
            comparison=comparison,
            vacuous={**_blind(comparison), **case.vacuous},
        )
        noise = self.seconds.get("noise", 0.0) - noise
        self._count("candidates", ran - start)
        self._count("compare", time.perf_counter() - ran - noise)
        if self.spool is not None:
            named = {self.pairing.renamed.get(name, name): x for name, x in found.items()}
            self.spool.write(f"{self.name} {self.runner.backend} {case.label}", named)
        return result if result else self._saved(result, case)

    def _count(self, what: str, seconds: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def _compare(self, case: Prepared, found: Tensors) -> Comparison:
        narrow = self._output_type(found)
        return compare_outputs(
            found,
            case.exact,
            case.baseline if narrow is None else self._narrow_baseline(case, narrow),
            rules=self._rules(case),
            noise=self._noise(case, narrow),
        )

    def _noise(self, case: Prepared, narrow: torch.dtype | None) -> NoiseEffects:
        if narrow not in case.noise:
            inputs = case.inputs
            case.noise[narrow] = NoiseEffects(lambda: self._noise_draws(inputs, narrow))
        return case.noise[narrow]

    def _noise_draws(self, inputs: Tensors, narrow: torch.dtype | None) -> Iterator[Tensors]:
        draws = self.reference.noisy(inputs, narrow)
        while True:
            start = time.perf_counter()
            drawn = next(draws, None)
            self._count("noise", time.perf_counter() - start)
            if drawn is None:
                return
            yield drawn

    def _output_type(self, found: Tensors) -> torch.dtype | None:
        """The type of the candidate's outputs, if it is not the reference's."""
        stored = {info.name: info.dtype for info in self.reference.outputs}
        for own, x in found.items():
            dtype = stored.get(self.pairing.renamed.get(own, own), x.dtype)
            if x.is_floating_point() and x.dtype != dtype:
                return x.dtype
        return None

    def _narrow_baseline(self, case: Prepared, dtype: torch.dtype) -> Tensors:
        """PyTorch in the candidate's type; where it cannot run so, one draw of its rounding."""
        own = self.reference.baseline(case.inputs, dtype)
        return own if own is not None else next(self.reference.noisy(case.inputs, dtype))

    def _rules(self, case: Prepared) -> Rules:
        longest = max((max(x.shape, default=1) for x in case.inputs.values()), default=1)
        return Rules(
            Tolerance(
                max(self.reference.reduction_length, longest),
                self.settings.rtol,
                self.settings.atol,
            ),
            renamed=self.pairing.renamed,
            ignored_extra=self.settings.ignore_extra,
            ignored_missing=self.settings.ignore_missing,
            logits=self.settings.logits | self._logits(case),
            vacuous_fails=False,  # judged over all cases
        )

    def _logits(self, case: Prepared) -> frozenset[str]:
        """Outputs named so, or as wide as the table that the inputs are looked up in."""
        widths = set(self.reference.index_bounds.values())
        return frozenset(
            name
            for name, x in case.exact.items()
            if x.is_floating_point()
            and x.dim() > 1
            and ("logits" in name or int(x.shape[-1]) in widths)
        )

    def _saved(self, result: CaseResult, case: Prepared) -> CaseResult:
        if self.settings.failures is None:
            return result
        replay = Replay(
            self.reference.name, self.name, self.runner.backend, case.label, case.inputs
        )
        return dataclasses.replace(result, replay=str(save_replay(replay, self.settings.failures)))
