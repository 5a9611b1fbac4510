"""`parity`: holds candidates against a reference, and says where and why they differ."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from qkexport.compare.scan import as_rows, chunks, row_errors
from qkexport.errors import UsageError
from qkexport.load import TorchSource, load_source
from qkexport.proof.candidate import Cases, Settings, run_candidate
from qkexport.proof.cases import Case, Suite, suite_cases
from qkexport.proof.environment import environment
from qkexport.proof.prepare import Prepared, Refused, prepare
from qkexport.proof.reference import Reference, open_reference
from qkexport.proof.results import CandidateResult, PairDifference, ParityResult
from qkexport.proof.spool import Spool
from qkexport.run import BACKENDS, backends_for
from qkexport.run.onnx_contents import default_backends
from qkexport.run.torch_runner import TORCH

if TYPE_CHECKING:
    from qkexport.input_options import InputSpec

__all__ = ["ParityResult", "Settings", "parity"]

_LOG: Final = logging.getLogger(__name__)


def parity(
    reference: Any,
    candidates: Sequence[str | Path],
    *,
    backends: Sequence[str] = (),
    require: Sequence[str] = (),
    suite: str | None = None,
    inputs: Mapping[str, torch.Tensor | InputSpec] | None = None,
    seed: int = 0,
    settings: Settings | None = None,
    allow_pickle: bool = False,
) -> ParityResult:
    """Runs candidates and a reference on the same inputs and compares every output.

    The reference is evaluated in float64, and in PyTorch in the type of each candidate; a candidate
    may err by twice what PyTorch errs plus a floor (`qkexport.compare.tolerance`).

    Args:
        reference: What `load_source` takes: path, factory name, nn.Module or ExportedProgram.
        candidates: .onnx files.
        backends: Who runs the candidates; empty: ONNX Runtime as the file can be run.
        require: Backends that must be here; they are also run.
        suite: `quick` or `full`; None: only the given inputs if they are values, else `quick`.
        inputs: Values of the inputs by name, or specs to trace a PyTorch module with.
        seed: Of the suite.
        settings: Tolerance, names and the folder of failing inputs.
        allow_pickle: Unpickle the reference; this can run any code.

    Returns:
        One verdict for each candidate and backend; true if all that ran matched, at least one ran
        and all required backends are here.

    Raises:
        UsageError: An option is wrong, or the reference needs inputs.
        LoadError: The reference cannot be read.
        UnsupportedModelError: The reference cannot be traced or evaluated.
    """
    wanted = _check_options(candidates, backends, require, suite)
    opened = _open(reference, inputs or {}, allow_pickle)
    given = _given(opened, inputs or {})
    chosen = Suite(suite or Suite.QUICK)
    cases: list[Case | Mapping[str, torch.Tensor]] = []
    if given is not None:
        cases.append(given)
    if given is None or suite is not None:
        cases += suite_cases(opened, chosen, seed)
    run = _Run(opened, cases, settings or Settings())
    pairs = [
        (Path(path), backend)
        for path in candidates
        for backend in wanted or default_backends(Path(path))
    ]
    with run:
        results = [run.candidate(path, backend, keep=len(pairs) > 1) for path, backend in pairs]
        differences = run.differences(results)
    absent = {result.backend for result in results if result.skipped} & set(require)
    return ParityResult(
        reference=opened.name,
        suite="given" if given is not None and suite is None else str(chosen),
        seed=seed,
        candidates=tuple(results),
        skipped_cases=tuple(f"{label}: {reason}" for label, reason in run.refused.items()),
        absent=tuple(sorted(absent)),
        pairs=differences,
        environment=environment(),
        seconds=run.seconds,
    )


def _check_options(
    candidates: Sequence[str | Path],
    backends: Sequence[str],
    require: Sequence[str],
    suite: str | None,
) -> tuple[str, ...]:
    for backend in (*backends, *require):
        if backend not in BACKENDS:
            message = f"Backend must be a known one, got {backend!r}."
            raise UsageError(message, note=f"accepted: {', '.join(BACKENDS)}.")
    if suite is not None and suite not in list(Suite):
        raise UsageError(f"Suite must be one of {', '.join(Suite)}, got {suite!r}.")
    if not candidates:
        raise UsageError("Parity needs a candidate, got none.", hint="name an .onnx file.")
    for path in map(Path, candidates):
        if not path.is_file():
            raise UsageError(f"Candidate must exist, got {path}.")
    wanted = dict.fromkeys((*backends, *require))
    wanted.pop(TORCH, None)  # always run: it is the reference's own
    for path in map(Path, candidates):
        for backend in wanted:
            if backend not in backends_for(path):
                accepted = ", ".join(backends_for(path))
                message = f"Backend {backend} must be able to run its source, got {path.name}."
                raise UsageError(message, note=f"{path.name} runs on {accepted}.")
    return tuple(wanted)


def _open(
    reference: Any, inputs: Mapping[str, torch.Tensor | InputSpec], allow_pickle: bool
) -> Reference:
    from qkexport.example_inputs import complete_source

    source = load_source(reference, allow_pickle=allow_pickle)
    if isinstance(source, TorchSource) and source.program is None:
        source = complete_source(source, inputs)
    return open_reference(source)


def _given(
    reference: Reference, inputs: Mapping[str, torch.Tensor | InputSpec]
) -> Mapping[str, torch.Tensor] | None:
    """The user's inputs, if they are values for all of the reference's."""
    values = {name: x for name, x in inputs.items() if isinstance(x, torch.Tensor)}
    if not values:
        return None
    whole = {**reference.examples, **values}
    return {info.name: whole[info.name] for info in reference.inputs if info.name in whole}


class _Run:
    """The state of one run: prepared cases on disk, time spent, cases that were refused."""

    def __init__(
        self,
        reference: Reference,
        cases: Sequence[Case | Mapping[str, torch.Tensor]],
        settings: Settings,
    ) -> None:
        self.reference = reference
        self.seconds: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self._cases = cases
        self._settings = settings
        self._spool = Spool()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def candidate(self, path: Path, backend: str, *, keep: bool) -> CandidateResult:
        """Runs one candidate; `keep` keeps answers and outputs on disk for the next."""
        return run_candidate(
            self.reference,
            path,
            backend,
            self._prepared(keep=keep),
            self._settings,
            self.seconds,
            self._spool if keep else None,
        )

    def _prepared(self, *, keep: bool) -> Cases:
        def cases(rounded_to: torch.dtype | None) -> Iterator[Prepared]:
            for index, case in enumerate(self._cases):
                with contextlib.suppress(Refused):
                    yield self._one(index, case, rounded_to, keep=keep)

        return cases

    def _one(
        self,
        index: int,
        case: Case | Mapping[str, torch.Tensor],
        rounded_to: torch.dtype | None,
        *,
        keep: bool,
    ) -> Prepared:
        key = f"case {index} {rounded_to}"
        stored = self._spool.read_case(key)
        if stored is not None:
            return stored
        try:
            prepared = prepare(self.reference, case, rounded_to, self.seconds)
        except Refused as refusal:
            self.refused[case.label if isinstance(case, Case) else "given"] = str(refusal)
            raise
        if keep:
            self._spool.write_case(key, prepared)
        return prepared

    def differences(self, results: Sequence[CandidateResult]) -> tuple[PairDifference, ...]:
        """Largest distance between each two candidates, output by output."""
        found: dict[tuple[str, str, str], float] = {}
        ran = [result for result in results if any(case.comparison for case in result.cases)]
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
    blocks = chunks(as_rows(x.double()), as_rows(y.double()))
    return max(float(row_errors(a, b).max()) for a, b in blocks if a is not None and b is not None)
