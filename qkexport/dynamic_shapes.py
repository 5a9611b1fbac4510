"""Joins the axes that --dynamic names with the dynamic_shapes that a source brings along."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from qkexport.errors import UsageError
from qkexport.input_options import DynamicDim
from qkexport.load import TorchSource

Parameters = Mapping[str, inspect.Parameter]


def merge_dynamic_shapes(
    source: TorchSource,
    parameters: Parameters,
    values: Mapping[str, Any],
    dynamic: Sequence[DynamicDim],
) -> dict[str, Any] | None:
    """Builds dynamic_shapes by parameter name, as torch.export.export takes them.

    Args:
        source: Brings its own dynamic_shapes, or None.
        parameters: Of the module's forward.
        values: Example input by name; names outside `parameters` go to forward's **kwargs.
        dynamic: Axes to add; the same symbol means the same size everywhere.

    Returns:
        One entry for every input, or None where nothing varies.

    Raises:
        UsageError: A shape names an input that was not given, or an axis that does not exist.
    """
    rest = _variadic_keyword(parameters)
    own = _own_shapes(source, parameters, values, rest)
    if own is None and not dynamic:
        return None
    given = {name: shape for name, shape in (own or {}).items() if shape is not None}
    shapes = {name: given.get(name, _static(value)) for name, value in values.items()}
    dims = _torch_dims(dynamic)
    for dim in dynamic:
        axis = _axis(source, dim, values)
        shapes[dim.name] = {**_by_axis(shapes[dim.name]), axis: dims[dim.symbol]}
    nested = {name: shapes.pop(name) for name in list(shapes) if name not in parameters}
    return {**shapes, rest: nested} if rest and nested else shapes


def _static(value: Any) -> Any:
    """None for every tensor of an input, however nested: nothing of it varies."""
    from torch.utils import _pytree as pytree

    return pytree.tree_map(lambda _: None, value)


def _variadic_keyword(parameters: Parameters) -> str | None:
    kind = inspect.Parameter.VAR_KEYWORD
    return next((name for name, item in parameters.items() if item.kind is kind), None)


def _own_shapes(
    source: TorchSource, parameters: Parameters, values: Mapping[str, Any], rest: str | None
) -> dict[str, Any] | None:
    own = source.dynamic_shapes
    if own is None:
        return None
    if isinstance(own, tuple | list):
        given = [name for name in parameters if name in values]
        return dict(zip(given, own, strict=False))
    own = dict(own)
    if rest in own:
        own |= own.pop(rest) or {}
    unknown = [name for name in own if name not in values]
    if unknown:
        message = f"dynamic_shapes of {source.name} must name given inputs, got {unknown}."
        raise UsageError(message, note=f"given are {', '.join(values)}.")
    return own


def _torch_dims(dynamic: Sequence[DynamicDim]) -> dict[str, Any]:
    from torch.export import Dim

    ranges: dict[str, DynamicDim] = {}
    for dim in dynamic:
        known = ranges.get(dim.symbol, dim)
        for field in ("minimum", "maximum"):
            old, new = getattr(known, field), getattr(dim, field)
            if old is not None and new is not None and old != new:
                message = f"--dynamic {dim.symbol} must have one {field}, got {old} and {new}."
                raise UsageError(message)
        ranges[dim.symbol] = dataclasses.replace(
            known,
            minimum=dim.minimum if known.minimum is None else known.minimum,
            maximum=dim.maximum if known.maximum is None else known.maximum,
        )
    # without a minimum torch starts at 0, and sizes of nothing are not worth promising
    return {
        symbol: Dim(symbol, min=1 if dim.minimum is None else dim.minimum, max=dim.maximum)
        for symbol, dim in ranges.items()
    }


def _axis(source: TorchSource, dim: DynamicDim, values: Mapping[str, Any]) -> int:
    import torch

    value = values.get(dim.name)
    if not isinstance(value, torch.Tensor):
        kind = "no value" if value is None else type(value).__name__
        message = f"--dynamic {dim.name} of {source.name} must be a tensor input, got {kind}."
        raise UsageError(message, hint="give nested inputs their dynamic_shapes in a factory.")
    rank = value.ndim
    if not -rank <= dim.axis < rank:
        message = f"--dynamic {dim.name} must name one of its {rank} axes, got {dim.axis}."
        raise UsageError(message)
    return dim.axis % rank


def _by_axis(shape: Any) -> dict[int, Any]:
    return dict(enumerate(shape)) if isinstance(shape, tuple | list) else dict(shape or {})
