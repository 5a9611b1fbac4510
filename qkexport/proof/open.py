"""Loads a model to be a reference: a PyTorch module gets its inputs and the axes that vary."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from qkexport.errors import QkexportError, UsageError
from qkexport.example_inputs import complete_source
from qkexport.kv_cache import lacks_kv_cache, with_kv_cache
from qkexport.kv_cache.contract import kind_of_inputs
from qkexport.load import TorchSource, load_source
from qkexport.proof.candidate_axes import input_names, open_axes
from qkexport.run.program import load_program

if TYPE_CHECKING:
    from qkexport.input_options import DynamicDim, InputSpec
    from qkexport.load import Source

_LOG: Final = logging.getLogger(__name__)


def open_source(
    model: Any,
    inputs: Mapping[str, torch.Tensor | InputSpec],
    dynamic: Sequence[DynamicDim],
    candidates: Sequence[Path],
    allow_pickle: bool,
) -> Source:
    """Loads a model; a PyTorch module is exported, so that it is traced once.

    Args:
        model: What `load_source` takes.
        inputs: Example inputs by name, for a module that brings none.
        dynamic: Axes that vary; empty: the module's own dynamic shapes, or the axes that the first
            candidate leaves open.
        candidates: Files that the model will be compared with; if the first has keys and values
            as inputs, so will the model.
        allow_pickle: Unpickle the model; this can run any code.

    Raises:
        UsageError: The module needs inputs, or the model has its axes built in.
        UnsupportedModelError: torch.export cannot trace the module.
    """
    source = load_source(model, allow_pickle=allow_pickle)
    cache = kind_of_inputs(input_names(candidates[0])) if candidates else None
    if cache is not None and lacks_kv_cache(source):
        source = with_kv_cache(source, cache)
    if not isinstance(source, TorchSource) or source.program is not None:
        if dynamic:
            message = f"--dynamic must go with an nn.Module, got {source.name}."
            raise UsageError(message, hint="an exported model has its axes built in.")
        return source
    if source.args or source.kwargs:
        # its own examples trace it; given values are cases, and may have sizes unfit for tracing
        inputs = {name: x for name, x in inputs.items() if not isinstance(x, torch.Tensor)}
    if dynamic or source.dynamic_shapes is not None:
        return _exported(complete_source(source, inputs, dynamic))
    axes = open_axes(candidates[0]) if candidates else ()
    try:
        return _exported(complete_source(source, inputs, axes))
    except QkexportError as error:
        if not axes:
            raise
        _LOG.info("the reference keeps its example's sizes: %s", error.message)
        return _exported(complete_source(source, inputs))


def _exported(source: TorchSource) -> TorchSource:
    return dataclasses.replace(source, program=load_program(source).exported)
