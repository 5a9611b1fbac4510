"""`assert_parity`: parity as an assertion of somebody's own tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from qkexport.proof.parity import ParityResult, parity

_WIDTH = 160


def assert_parity(reference: Any, *candidates: str | Path, **options: Any) -> ParityResult:
    """Fails unless every candidate computes what the reference computes.

    Args:
        reference: What `parity` takes: path, factory name, nn.Module or ExportedProgram.
        *candidates: .onnx files.
        **options: As for `parity`; `layers` is on, so that a failure says where it arises.

    Returns:
        The result, for more assertions.

    Raises:
        AssertionError: A candidate differs, did not run, or nothing was tested. The message is the
            report that `qkexport parity` prints.

    Example:
        >>> import torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> source = QKNormAttention(64, num_heads=4), (torch.randn(2, 8, 64),)
        >>> _ = qkexport.convert(source, "attention.onnx", verify=False)
        >>> _ = qkexport.assert_parity(source, "attention.onnx", backends=["ort-stock"])
    """
    __tracebackhide__ = True
    result = parity(reference, candidates, **{"layers": True, **options})
    if not result:
        raise AssertionError(failure_text(result))
    return result


def failure_text(result: ParityResult) -> str:
    """The report as plain text."""
    from rich.console import Console

    from qkexport.report.terminal import print_parity

    text = io.StringIO()
    console = Console(file=text, width=_WIDTH, markup=False, highlight=False, emoji=False)
    print_parity(result, console)
    return text.getvalue()
