"""The operator inside an oracle: the reference, in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from qkexport.reference import reference_attention
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES
from qkexport.spec import AttentionSpec

_ATTRIBUTES = tuple(field.name for field in dataclasses.fields(AttentionSpec))


def exact_attention(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Evaluates a call of the PyTorch operator by the reference.

    Args:
        func: `qkexport::qk_norm_attention` or its sibling that also returns the cache.
        args: As the operator was called.
        kwargs: Likewise.
    """
    schema = func._schema
    given = {arg.name: arg.default_value for arg in schema.arguments if arg.has_default_value()}
    given |= dict(zip((arg.name for arg in schema.arguments), args, strict=False))
    given |= kwargs
    spec = AttentionSpec(**{name: given[name] for name in _ATTRIBUTES})
    inputs = {name: given[name] for name in INPUT_NAMES if given.get(name) is not None}
    names = OUTPUT_NAMES[: len(schema.returns)]
    results = evaluate(spec, inputs, names)
    return results[0] if len(results) == 1 else results


def evaluate(
    spec: AttentionSpec, inputs: Mapping[str, torch.Tensor], outputs: tuple[str, ...]
) -> tuple[torch.Tensor, ...]:
    """The operator's outputs in float64, computed outside of any dispatch mode."""
    results = reference_attention(spec, inputs, compute_dtype=torch.float64, outputs=outputs)
    return tuple(results[name] for name in outputs)
