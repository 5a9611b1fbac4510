"""The benchmark's subprocess: draws inputs or measures one contender, and answers in JSON.

A process of its own gives each contender a memory that nobody has used before, and lets a backend
that dies take nobody with it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from qkexport.errors import QkexportError
from qkexport.input_options import InputSpec, read_inputs


def draw(request: Mapping[str, Any]) -> dict[str, Any]:
    """Draws inputs into a file; answers with their shapes."""
    from qkexport.benchmark.inputs import draw_inputs

    given: dict[str, Any] = {spec.name: spec for spec in map(InputSpec.parse, request["specs"])}
    if request["given"] is not None:
        given |= read_inputs(Path(request["given"]))
    inputs = draw_inputs(
        request["source"],
        [Path(other) for other in request["others"]],
        given,
        seed=request["seed"],
        allow_pickle=request["allow_pickle"],
    )
    torch.save(inputs, request["inputs"])
    return {name: list(x.shape) for name, x in inputs.items()}


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Measures one contender."""
    from qkexport.benchmark.measure import measure

    return measure(
        request["source"],
        request["backend"],
        read_inputs(Path(request["inputs"])),
        runs=request["runs"],
        warm_up=request["warm_up"],
        allow_pickle=request["allow_pickle"],
    ).to_dict()


_TASKS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"draw": draw, "run": run}


def main() -> None:
    """Does what the request on stdin asks for."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    try:
        answer = {"answer": _TASKS[request["task"]](request)}
    except QkexportError as error:
        parts = {"message": error.message, "note": error.note, "hint": error.hint}
        answer = {"error": {"type": type(error).__name__, **parts}}
    except Exception as error:  # whatever the model's own code raises
        line = (str(error).splitlines() or [""])[0]
        answer = {"error": {"type": "", "message": f"{type(error).__name__}: {line}"}}
    with answers:
        json.dump(answer, answers)


if __name__ == "__main__":
    main()
