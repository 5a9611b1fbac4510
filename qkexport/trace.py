"""PyTorch source to ONNX IR, through torch.export and torch.onnx."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from qkexport.errors import UnsupportedModelError
from qkexport.load import Source, TorchSource

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

_LOG: Final = logging.getLogger(__name__)
_EXPORTERS: Final = ("torch.onnx", "torch.export", "torch.fx", "onnxscript")


@dataclasses.dataclass(frozen=True)
class Trace:
    """A model as an ONNX graph.

    Attributes:
        source: What it was made from; a PyTorch source now carries its exported program.
        model: The graph.
    """

    source: Source
    model: ir.Model


def trace(source: TorchSource, *, opset: int) -> Trace:
    """Exports a PyTorch source to ONNX.

    torch.onnx decomposes the program before it translates it, which turns in-place updates into
    values: what is matched later is what is computed. Complex arithmetic is written as real
    arithmetic before.

    Args:
        source: With complete example inputs, or an exported program.
        opset: ONNX opset of the result.

    Returns:
        The model, whose weights are the module's own tensors, not copies.

    Raises:
        UnsupportedModelError: torch cannot export the model, or not at this opset.
    """
    program = source.program if source.program is not None else _export(source)
    model = _translate(source, program, opset)
    return Trace(dataclasses.replace(source, program=program), model)


def _export(source: TorchSource) -> ExportedProgram:
    import torch

    from qkexport.separate_inputs import separate_inputs

    try:
        with exporter_noise_logged(), torch.no_grad():
            return torch.export.export(
                source.module,
                *separate_inputs(source.args, source.kwargs),
                dynamic_shapes=source.dynamic_shapes,
            )
    except Exception as error:
        message = f"Model {source.name} must be exportable by torch.export, got {_reason(error)}."
        hint = "rewrite what it names, or make the dimension static. --debug shows the trace."
        raise UnsupportedModelError(message, note=_place(error), hint=hint) from error


def _translate(source: TorchSource, program: ExportedProgram, opset: int) -> ir.Model:
    import torch

    from qkexport.real_arithmetic import in_real_arithmetic
    from qkexport.torch_op import onnx_translation_table

    with exporter_noise_logged(), torch.no_grad():
        program = in_real_arithmetic(program)
    try:
        with exporter_noise_logged(), torch.no_grad():
            exported = torch.onnx.export(
                program,
                (),
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=_axis_names(source.dynamic_shapes),
                custom_translation_table=dict(onnx_translation_table()),
                verbose=False,
            )
    except Exception as error:
        message = f"Model {source.name} must be translatable to ONNX, got {_reason(error)}."
        hint = "rewrite the operation it names. --debug shows the trace."
        raise UnsupportedModelError(message, hint=hint) from error
    if exported is None:
        raise UnsupportedModelError(f"Model {source.name} must give a graph, got none.")
    model = exported.model
    reached = model.opset_imports.get("", opset)
    if reached != opset:
        message = f"Model {source.name} must fit opset {opset}, got operators of {reached}."
        raise UnsupportedModelError(message, hint=f"convert with --opset {reached}.")
    if source.names is not None:
        _rename(model.graph.inputs, source.names.inputs)
        _rename(model.graph.outputs, source.names.outputs)
    return model


def _rename(values: Sequence[ir.Value], names: Sequence[str]) -> None:
    for value, name in zip(values, names, strict=bool(names)):
        value.name = name


def _axis_names(shapes: Any) -> Any:
    """dynamic_shapes with each Dim replaced by its name, which is how torch.onnx names axes."""
    if isinstance(shapes, dict):
        return {key: _axis_names(value) for key, value in shapes.items()}
    if isinstance(shapes, tuple | list):
        return type(shapes)(map(_axis_names, shapes))
    return getattr(shapes, "__name__", None)


def _reason(error: Exception) -> str:
    """The first line that says something: torch wraps its errors in pages of advice."""
    cause = error
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    text = lines[0].rstrip(".") if lines else "no message"
    return f"{type(cause).__name__}: {text}"


def _place(error: Exception) -> str | None:
    """Where in the model's own code torch stopped, from the trace that its message quotes."""
    found = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', str(error))
    own = [place for place in found if "site-packages" not in place[0]]
    return "it stopped at {}:{}, in {}.".format(*own[-1]) if own else None


@contextlib.contextmanager
def exporter_noise_logged() -> Iterator[None]:
    """Sends what torch warns about and prints while exporting to the debug log."""
    loggers = [logging.getLogger(name) for name in _EXPORTERS]
    levels = [logger.level for logger in loggers]
    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        if not _LOG.isEnabledFor(logging.DEBUG):
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            for warning in caught or ():
                _LOG.debug("%s: %s", warning.category.__name__, warning.message)
            for line in printed.getvalue().splitlines():
                _LOG.debug("%s", line)
