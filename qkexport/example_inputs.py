"""Completes a PyTorch source with the inputs it is traced with, and with what may vary."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qkexport.dynamic_shapes import merge_dynamic_shapes
from qkexport.errors import UsageError
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.load import TorchSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_POSITIONAL: Final = inspect.Parameter.POSITIONAL_ONLY
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def complete_source(
    source: TorchSource,
    inputs: Mapping[str, Tensor | InputSpec],
    dynamic: Iterable[DynamicDim] = (),
    dtype: torch.dtype | None = None,
) -> TorchSource:
    """Joins a source's own example inputs with given ones; given ones win.

    Args:
        source: The model. An exported program keeps the inputs it was exported with.
        inputs: By parameter name of `forward`: tensors, or specs that random tensors stand in for.
        dynamic: Axes that may vary, added to the source's own dynamic shapes.
        dtype: Casts the module, in place, and its floating point inputs.

    Returns:
        The source with args, kwargs and dynamic shapes that torch.export.export takes.

    Raises:
        UsageError: A name is unknown, a required input is missing, or an axis does not exist.
    """
    if source.program is not None:
        return _refuse_changes(source, inputs, dynamic, dtype)
    parameters = _parameters(source)
    values = _bind(source, parameters)
    _check_names(source, parameters, [*inputs, *(dim.name for dim in dynamic)])
    values |= {name: _as_tensor(value, dtype) for name, value in inputs.items()}
    _check_complete(source, parameters, values)
    if dtype is not None:
        _cast_module(source.module, dtype)
        values = _cast(values, dtype)
    shapes = merge_dynamic_shapes(source, parameters, values, tuple(dynamic))
    args, kwargs = _split(parameters, values)
    described = {name for name, value in inputs.items() if isinstance(value, InputSpec)}
    stand_ins = (source.stand_ins - set(inputs)) | described
    return dataclasses.replace(
        source, args=args, kwargs=kwargs, dynamic_shapes=shapes, stand_ins=stand_ins
    )


def _refuse_changes(
    source: TorchSource, inputs: Mapping[str, object], dynamic: Iterable[DynamicDim], dtype: object
) -> TorchSource:
    for option, value in (("--input", inputs), ("--dynamic", tuple(dynamic)), ("--dtype", dtype)):
        if value:
            message = f"{option} must be given when the model is exported, got {source.name}."
            raise UsageError(message, hint="convert the nn.Module, or export the .pt2 again.")
    return source


def _parameters(source: TorchSource) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(source.module.forward).parameters


def _bind(source: TorchSource, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    signature = inspect.Signature(list(parameters.values()))
    try:
        bound = signature.bind_partial(*source.args, **source.kwargs).arguments
    except TypeError as error:
        message = f"Inputs of {source.name} must fit forward{signature}, got {error}."
        raise UsageError(message) from None
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and name in bound:
            bound |= bound.pop(name)
    return bound


def _check_names(
    source: TorchSource, parameters: Mapping[str, inspect.Parameter], names: Sequence[str]
) -> None:
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            close = difflib.get_close_matches(name, parameters, n=1)
            message = f"Model {source.name} has no input of that name, got {name!r}."
            note = f"its inputs are {', '.join(parameters)}."
            raise UsageError(message, note=note, hint=_did_you_mean(close))


def _did_you_mean(close: Sequence[str]) -> str | None:
    return f"did you mean {close[0]!r}?" if close else None


def _check_complete(
    source: TorchSource, parameters: Mapping[str, inspect.Parameter], values: Mapping[str, Any]
) -> None:
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIADIC
    ]
    missing = [name for name in required if name not in values]
    if not missing and values:
        return
    names = missing or list(parameters)
    if not names:
        return  # a model without inputs
    message = f"Model {source.name} needs example inputs to be traced, got none for {names}."
    signature = inspect.Signature(list(parameters.values()))
    flags = " ".join(f"--input {name}=SHAPE:DTYPE" for name in names)
    raise UsageError(message, note=f"forward{signature}.", hint=f"add {flags}, or --inputs FILE.")


def _as_tensor(value: Tensor | InputSpec, dtype: torch.dtype | None) -> Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        return value
    kind = getattr(torch, value.dtype)
    if not kind.is_floating_point:
        return torch.zeros(value.shape, dtype=kind)  # 0 is a legal index, and tracing reads none
    drawn = torch.randn(value.shape, dtype=torch.float32)
    return drawn.to(dtype if value.dtype == "float32" and dtype is not None else kind)


def _cast_module(module: nn.Module, dtype: torch.dtype) -> None:
    """Casts a module, unless its weights have the type: tables it derived may be finer then."""
    floating = [x for x in module.parameters() if x.is_floating_point()]
    if not floating or any(x.dtype != dtype for x in floating):
        module.to(dtype)


def _cast(values: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    import torch
    from torch.utils import _pytree as pytree

    def cast(leaf: Any) -> Any:
        is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(dtype) if is_float else leaf

    return {name: pytree.tree_map(cast, value) for name, value in values.items()}


def _split(
    parameters: Mapping[str, inspect.Parameter], values: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Orders values as forward declares them: positional only where it leaves no choice."""
    rest = next((n for n, p in parameters.items() if p.kind is _VARIADIC[0] and n in values), None)
    names = list(parameters)
    before_rest = names[: names.index(rest)] if rest else []
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name not in values:
            continue
        if name == rest:
            args.extend(values[name])
        elif parameter.kind is _POSITIONAL or name in before_rest:
            args.append(values[name])
        else:
            kwargs[name] = values[name]
    kwargs |= {name: value for name, value in values.items() if name not in parameters}
    return tuple(args), kwargs
