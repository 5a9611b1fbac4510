"""`qkexport parity`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from qkexport.cli.command import Command
from qkexport.cli.names import split_names
from qkexport.cli.outcome import Outcome
from qkexport.errors import UsageError
from qkexport.input_options import DynamicDim, InputSpec, read_inputs


@click.command("parity", cls=Command)
@click.argument("reference", required=False)
@click.argument("candidates", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME[,NAME]",
    help="torch, ort, ort-stock, plugin, tensorrt or tensorrt-rtx; default: as the file can run. "
    "torch evaluates the ONNX graph itself.",
)
@click.option(
    "--require", multiple=True, metavar="NAME[,NAME]", help="Backends that must be here; exit 3."
)
@click.option("--suite", type=click.Choice(["quick", "full"]), help="Inputs to try: quick.")
@click.option(
    "--inputs", "file", type=click.Path(path_type=Path), help="Inputs to try, .npz or .pt."
)
@click.option(
    "--input",
    "specs",
    multiple=True,
    metavar="NAME=SHAPE[:DTYPE]",
    help="An input to trace a PyTorch reference with, as in ids=2,16:int64.",
)
@click.option(
    "--dynamic",
    multiple=True,
    metavar="NAME:AXIS=SYM[:MIN:MAX]",
    help="An axis of a PyTorch reference that may vary; default: as the candidate's.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the suite's inputs.")
@click.option("--rtol", type=float, help="Replaces the derived tolerance, relative part.")
@click.option("--atol", type=float, help="Replaces the derived tolerance, absolute part.")
@click.option(
    "--map",
    "renamed",
    multiple=True,
    metavar="CANDIDATE=REFERENCE",
    help="A tensor that has another name in the candidate.",
)
@click.option(
    "--allow-constant",
    multiple=True,
    metavar="OUTPUT",
    help="An output that may be constant, empty or not finite in every case.",
)
@click.option("--ignore-extra", multiple=True, metavar="OUTPUT", help="Only in the candidate.")
@click.option("--ignore-missing", multiple=True, metavar="OUTPUT", help="Only in the reference.")
@click.option("--logits", multiple=True, metavar="OUTPUT", help="Compare its argmax too.")
@click.option(
    "--layers", is_flag=True, help="Find the attention in which a failing candidate's error arises."
)
@click.option(
    "--self-test",
    "self_testing",
    is_flag=True,
    help="Take no candidate: check that mutants of REFERENCE would be noticed.",
)
@click.option("--mutant", "mutants", multiple=True, help="With --self-test: only this one.")
@click.option(
    "--failures",
    type=click.Path(path_type=Path),
    default=Path("parity-failures"),
    show_default=True,
    help="Folder where failing inputs are saved.",
)
@click.option("--replay", type=click.Path(path_type=Path), help="Run a saved failing input again.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write .html, .json, .xml (JUnit) or .md.",
)
@click.option("--allow-pickle", is_flag=True, help="Unpickle REFERENCE; this can run any code.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    reference: str | None,
    candidates: tuple[Path, ...],
    reports: tuple[Path, ...],
    replay: Path | None,
    **options: Any,
) -> Outcome:
    r"""Prove that every CANDIDATE computes what REFERENCE computes.

    REFERENCE is what `convert` takes, or an .onnx file; a CANDIDATE is an .onnx file. All run on
    the same inputs; a candidate may err by twice what PyTorch errs in its type, plus a floor,
    against the same model in float64.

    \b
    Examples:
    qkexport parity model.pt2 model.onnx
    qkexport parity package.module:factory model.onnx --suite full --report parity.html
    qkexport parity original.onnx converted.onnx --backend ort-stock,ort --require ort
    qkexport parity model.pt2 --self-test
    """
    from qkexport.proof.parity import ParitySettings, parity
    from qkexport.proof.replay import load_replay
    from qkexport.report.files import check_report_paths, write_report
    from qkexport.report.terminal import print_parity

    check_report_paths(reports)
    _check_combination(ctx)
    if options["self_testing"]:
        return _self_test(reference, candidates, reports, options)
    settings = ParitySettings(
        rtol=options["rtol"],
        atol=options["atol"],
        declared=dict(map(_declared, options["renamed"])),
        allow_constant=frozenset(options["allow_constant"]),
        ignore_extra=frozenset(options["ignore_extra"]),
        ignore_missing=frozenset(options["ignore_missing"]),
        logits=frozenset(options["logits"]),
        failures=options["failures"] if replay is None else None,
    )
    inputs = _inputs(options)
    backends = split_names(options["backends"])
    if replay is not None:
        saved = load_replay(replay)
        inputs |= saved.inputs
        reference = reference or saved.reference
        candidates = candidates or (Path(saved.candidate),)
        backends = backends or (saved.backend,)
    if reference is None:
        message = "Parity needs a reference and a candidate, got neither."
        raise UsageError(message, hint="qkexport parity REFERENCE CANDIDATE...")
    result = parity(
        reference,
        candidates,
        backends=backends,
        require=split_names(options["require"]),
        suite=options["suite"],
        inputs=inputs,
        dynamic=tuple(map(DynamicDim.parse, options["dynamic"])),
        seed=options["seed"],
        settings=settings,
        layers=options["layers"],
        allow_pickle=options["allow_pickle"],
    )
    for path in reports:
        write_report(result, path)
    if result.absent:
        raise _absent(result)
    return Outcome(bool(result), result.to_dict(), lambda console: print_parity(result, console))


_OF_SELF_TESTS: Final = frozenset(
    {
        "reference",
        "candidates",
        "reports",
        "mutants",
        "specs",
        "file",
        "dynamic",
        "suite",
        "seed",
        "allow_pickle",
    }
)


def _check_combination(ctx: click.Context) -> None:
    """Refuses options that would have no effect."""
    given = [
        parameter
        for parameter in ctx.command.params
        if parameter.expose_value
        and ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if not ctx.params["self_testing"]:
        if ctx.params["mutants"]:
            raise UsageError("--mutant must go with --self-test, got it alone.")
        return
    known = _OF_SELF_TESTS | {"self_testing"}
    others = [parameter.opts[0] for parameter in given if parameter.name not in known]
    if others:
        message = f"--self-test must go without other ways to judge, got {', '.join(others)}."
        raise UsageError(
            message, hint="qkexport parity MODEL --self-test [--suite] [--seed] [--report]"
        )


def _inputs(options: Mapping[str, Any]) -> dict[str, Any]:
    inputs: dict[str, Any] = {spec.name: spec for spec in map(InputSpec.parse, options["specs"])}
    if options["file"] is not None:
        inputs |= read_inputs(options["file"])
    return inputs


def _self_test(
    model: str | None,
    candidates: tuple[Path, ...],
    reports: tuple[Path, ...],
    options: Mapping[str, Any],
) -> Outcome:
    from qkexport.proof.self_test import self_test
    from qkexport.report.files import write_report
    from qkexport.report.self_test import print_self_test

    if model is None or candidates:
        got = ", ".join(map(str, candidates)) or "none"
        message = f"--self-test takes one model and no candidate, got {got}."
        raise UsageError(message, hint="qkexport parity MODEL --self-test")
    result = self_test(
        model,
        names=split_names(options["mutants"]),
        inputs=_inputs(options),
        dynamic=tuple(map(DynamicDim.parse, options["dynamic"])),
        suite=options["suite"] or "full",
        seed=options["seed"],
        allow_pickle=options["allow_pickle"],
    )
    for path in reports:
        write_report(result, path)
    return Outcome(bool(result), result.to_dict(), lambda console: print_self_test(result, console))


def _declared(text: str) -> tuple[str, str]:
    candidate, equals, reference = text.partition("=")
    if not (candidate and equals and reference):
        raise UsageError(f"--map must be CANDIDATE=REFERENCE, got {text!r}.")
    return candidate, reference


def _absent(result: Any) -> Exception:
    from qkexport.errors import BackendUnavailableError

    reasons = {
        candidate.backend: candidate.reason
        for candidate in result.candidates
        if candidate.backend in result.absent
    }
    names = ", ".join(result.absent)
    note = " ".join(reasons.values())
    return BackendUnavailableError(
        f"Required backends must be here, got none for {names}.", note=note
    )
