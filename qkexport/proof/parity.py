"""`parity`: holds candidates against a reference, and says where and why they differ."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from qkexport.domain import ModelDomain
from qkexport.errors import UsageError
from qkexport.missing_file import require_file
from qkexport.names import suggest
from qkexport.progress import part
from qkexport.proof.candidate import Candidate, ParitySettings
from qkexport.proof.cases import Case, Suite, suite_cases
from qkexport.proof.engine_sizes import within_engines
from qkexport.proof.environment import environment
from qkexport.proof.layers.candidate import localized
from qkexport.proof.open import open_source
from qkexport.proof.record import places_of_candidates, record_evidence
from qkexport.proof.reference import Reference, open_reference
from qkexport.proof.results import CandidateResult, ParityResult
from qkexport.proof.session import Run
from qkexport.proof.windows import reaching_length, unreached, windows_of
from qkexport.run import BACKENDS, backends_for
from qkexport.run.inputs import checked_inputs
from qkexport.run.onnx_contents import default_backends
from qkexport.trial import Trial

if TYPE_CHECKING:
    from qkexport.input_options import DynamicDim, InputSpec

__all__ = ["ParityResult", "ParitySettings", "parity"]


def parity(
    reference: Any,
    candidates: Sequence[str | Path],
    *,
    backends: Sequence[str] = (),
    require: Sequence[str] = (),
    suite: str | None = None,
    inputs: Mapping[str, torch.Tensor | InputSpec] | None = None,
    dynamic: Sequence[DynamicDim] = (),
    seed: int = 0,
    settings: ParitySettings | None = None,
    layers: bool = False,
    allow_pickle: bool = False,
) -> ParityResult:
    """Runs candidates and a reference on the same inputs and compares every output.

    The reference is evaluated in float64, and in PyTorch in the type of each candidate; a candidate
    may err by twice what PyTorch errs plus a floor (`qkexport.compare.tolerance`). The manifest of
    an engine is told the outcome, and so are manifests of engines that lie beside their model.

    Args:
        reference: What `load_source` takes: path, factory name, nn.Module or ExportedProgram.
        candidates: .onnx files and engines.
        backends: Who runs the candidates; empty: ONNX Runtime as the file can be run.
        require: Backends that must be here; they are also run.
        suite: `quick` or `full`; None: only the given inputs if they are values, else `quick`.
        inputs: Values of the inputs by name, or specs to trace a PyTorch module with.
        dynamic: Axes of a PyTorch module that vary; empty: its own dynamic shapes, or the axes
            that the first candidate leaves open.
        seed: Of the suite.
        settings: Tolerance, names and the folder of failing inputs.
        layers: Find the attention in which the error of a failing candidate arises.
        allow_pickle: Unpickle the reference; this can run any code.

    Returns:
        One verdict for each candidate and backend; true if all that ran matched, at least one ran
        and all required backends are here.

    Raises:
        UsageError: An option is wrong, or the reference needs inputs.
        LoadError: The reference cannot be read.
        UnsupportedModelError: The reference cannot be traced or evaluated.

    Example:
        >>> import torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> source = QKNormAttention(64, num_heads=4), (torch.randn(2, 8, 64),)
        >>> _ = qkexport.convert(source, "attention.onnx", verify=False)
        >>> result = qkexport.parity(source, ["attention.onnx"], backends=["ort-stock"])
        >>> for candidate in result.candidates:
        ...     print(candidate.backend, candidate.verdict)
        ort-stock MATCHED
    """
    wanted = _check_options(candidates, backends, require, suite)
    paths = [Path(path) for path in candidates]
    start = time.perf_counter()
    source = open_source(reference, inputs or {}, dynamic, paths, allow_pickle)
    opened = open_reference(source)
    opened.domain = within_engines(opened.domain, paths)
    places = places_of_candidates(paths)
    windows = {str(path): windows_of(path) for path in paths}
    given = _given(opened, inputs or {})
    chosen = Suite(suite or Suite.QUICK)
    cases: list[Case | Trial | Mapping[str, torch.Tensor]] = []
    if given is not None:
        cases.append(given)
    if given is None or suite is not None:
        reach = max(map(reaching_length, itertools.chain(*windows.values())), default=0)
        cases += opened.trials or suite_cases(opened, chosen, seed, reach=reach)
    run = Run(opened, cases, settings or ParitySettings())
    run.seconds["loading"] = time.perf_counter() - start
    judged = [
        Candidate.of_file(path, backend)
        for path in paths
        for backend in _chosen_backends(path, wanted)
    ]
    with run:
        keep = len(judged) > 1 or layers
        results = []
        for index, candidate in enumerate(judged):
            with part(index, len(judged)):
                results.append(run.candidate(candidate, keep=keep))
        if layers:
            results = [localized(result, source, run) for result in results]
        results = [_noted(result, windows[result.name], opened.domain) for result in results]
        differences = run.differences(results)
    absent = {result.backend for result in results if result.skipped} & set(require)
    result = ParityResult(
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
    record_evidence(result, places, settings or ParitySettings())
    return result


def _noted(
    result: CandidateResult, windows: frozenset[int], domain: ModelDomain
) -> CandidateResult:
    note = unreached(windows, domain, [case.shapes for case in result.cases])
    return dataclasses.replace(result, notes=(*result.notes, note)) if note else result


def _check_options(
    candidates: Sequence[str | Path],
    backends: Sequence[str],
    require: Sequence[str],
    suite: str | None,
) -> tuple[str, ...]:
    for backend in (*backends, *require):
        if backend not in BACKENDS:
            message = f"Backend must be a known one, got {backend!r}."
            note = f"accepted: {', '.join(BACKENDS)}."
            raise UsageError(message, note=note, hint=suggest(backend, BACKENDS))
    if suite is not None and suite not in list(Suite):
        raise UsageError(f"Suite must be one of {', '.join(Suite)}, got {suite!r}.")
    if not candidates:
        raise UsageError("Parity needs a candidate, got none.", hint="name an .onnx file.")
    for path in map(Path, candidates):
        require_file("Candidate", path)
    wanted = tuple(dict.fromkeys((*backends, *require)))
    _check_fit([Path(path) for path in candidates], wanted)
    return wanted


def _check_fit(paths: Sequence[Path], wanted: Sequence[str]) -> None:
    """Refuses a backend that can run no candidate, and a candidate that none can run."""
    for path in paths if wanted else ():
        if not set(wanted) & set(backends_for(path)):
            message = f"Candidate {path.name} must run on a given backend, got {', '.join(wanted)}."
            raise UsageError(message, note=f"it runs on {', '.join(backends_for(path))}.")
    for backend in wanted:
        if not any(backend in backends_for(path) for path in paths):
            names = ", ".join(path.name for path in paths)
            message = f"Backend {backend} must be able to run a candidate, got {names}."
            accepted = dict.fromkeys(name for path in paths for name in backends_for(path))
            raise UsageError(message, note=f"accepted: {', '.join(accepted)}.")


def _chosen_backends(path: Path, wanted: Sequence[str]) -> tuple[str, ...]:
    """The given backends that can run a file; without any, those that it asks for."""
    own = tuple(backend for backend in wanted if backend in backends_for(path))
    return own if wanted else default_backends(path)


def _given(
    reference: Reference, inputs: Mapping[str, torch.Tensor | InputSpec]
) -> Mapping[str, torch.Tensor] | None:
    """The user's inputs, if they are values for all of the reference's."""
    values = {name: x for name, x in inputs.items() if isinstance(x, torch.Tensor)}
    if not values:
        return None
    whole = {**reference.examples, **values}
    given = {info.name: whole[info.name] for info in reference.inputs if info.name in whole}
    return checked_inputs("the reference", reference.inputs, given)
