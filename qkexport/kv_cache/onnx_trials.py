"""Trials of an ONNX model that keeps the contract of `--kv-cache`, whoever exported it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch

from qkexport.domain import ModelDomain
from qkexport.kv_cache.contract import CacheLayer, kind_of_inputs, tensor_names
from qkexport.kv_cache.trials import Step, step_inputs, trial_steps
from qkexport.trial import Trial

_ROWS: Final = 20  # windows are not told apart here: most tests have shorter ones


def trials_of_domain(domain: ModelDomain, bounds: Mapping[str, int]) -> tuple[Trial, ...]:
    """Calls that fit the model; none where it keeps no contract or has sizes built in.

    Args:
        domain: Of the model.
        bounds: Exclusive upper bound of the integers that an input may hold.
    """
    names = tuple(item.name for item in domain.inputs)
    kind = kind_of_inputs(names)
    pasts = domain.inputs[3:]
    if kind is None or len(pasts) % 2 or any(len(item.shape) != 4 for item in pasts):
        return ()
    layers = [
        CacheLayer(index, int(key.shape[1]), int(key.shape[3]), int(value.shape[3]))
        for index, (key, value) in enumerate(zip(pasts[::2], pasts[1::2], strict=True))
        if all(str(item.shape[axis]).isdecimal() for item in (key, value) for axis in (1, 3))
    ]
    varies = all(isinstance(item.shape[0], str) for item in domain.inputs)
    if names != tensor_names(kind, layers).inputs or not varies:
        return ()
    if any(isinstance(item.shape[axis], int) for item in pasts for axis in (0, 2)):
        return ()
    vocabulary, dtype = bounds.get("input_ids", 2), getattr(torch, pasts[0].dtype)

    def inputs(step: Step, seed: int) -> dict[str, torch.Tensor]:
        own = step_inputs(kind, step, layers, vocabulary=vocabulary, dtype=dtype, seed=seed)
        return dict(zip(names, own, strict=True))

    steps = trial_steps(_ROWS).items()
    return tuple(Trial(label, inputs(step, seed)) for seed, (label, step) in enumerate(steps))
