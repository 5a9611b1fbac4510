"""Wraps a causal LM of transformers so that it is exported with its cache."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, Final

from qkexport.errors import UsageError
from qkexport.kv_cache import contract
from qkexport.kv_cache.contract import CacheLayer
from qkexport.load import OnnxSource, Source, TorchSource
from qkexport.spec import KvCache
from qkexport.trial import Trial

if TYPE_CHECKING:
    import torch
    from torch import nn

_LONGEST_TRIED: Final = 4096  # windows beyond this are tried from inside only


def with_kv_cache(source: Source, kind: KvCache | str, dtype: str | None = None) -> TorchSource:
    """The model with its keys and values as inputs and outputs, ready to be exported.

    Args:
        source: Holds a causal LM of transformers; its own example inputs are not used.
        kind: `concat` or `static`.
        dtype: The model will be cast to this type.

    Raises:
        UsageError: The source is no such model.
        UnsupportedModelError: Its cache holds more than keys and values, or gives other results
            than the model without a cache.
    """
    from qkexport.hugging_face.modules import TaskModel
    from qkexport.kv_cache.check import check_against_whole
    from qkexport.kv_cache.concat import ConcatCacheModel
    from qkexport.kv_cache.probe import cache_layers, check_causal_lm
    from qkexport.kv_cache.static import StaticCacheModel

    kind = KvCache(kind)
    if isinstance(source, OnnxSource) or source.program is not None:
        message = f"--kv-cache must go with a causal LM of transformers, got {source.name}."
        raise UsageError(message, hint="an exported model has its inputs built in.")
    model = source.module.model if isinstance(source.module, TaskModel) else source.module
    check_causal_lm(source.name, model)
    layers = cache_layers(source.name, model)
    wrapper = ConcatCacheModel if kind is KvCache.CONCAT else StaticCacheModel
    module = wrapper(model, layers).eval()
    check_against_whole(source.name, model, module, kind, layers)
    names = contract.tensor_names(kind, layers)
    inputs = _trial_inputs(model, kind, layers, dtype)
    example = inputs["piece of a prompt"]
    own, pasts = example[:3], example[3:]
    return dataclasses.replace(
        source,
        module=module,
        args=(*own, pasts),
        kwargs={},
        dynamic_shapes=_dynamic_shapes(kind, len(pasts)),
        names=names,
        stand_ins=frozenset(names.inputs),  # the example is one of the trials
        trials=tuple(
            Trial(label, dict(zip(names.inputs, tensors, strict=True)))
            for label, tensors in inputs.items()
        ),
    )


def lacks_kv_cache(source: Source) -> bool:
    """Whether a source is a bare model of transformers, which could be wrapped."""
    transformers = sys.modules.get("transformers")
    if transformers is None or isinstance(source, OnnxSource) or source.program is not None:
        return False
    from qkexport.hugging_face.modules import TaskModel

    return isinstance(source.module, TaskModel | transformers.PreTrainedModel)


def _trial_inputs(
    model: nn.Module, kind: KvCache, layers: tuple[CacheLayer, ...], dtype: str | None
) -> dict[str, list[torch.Tensor]]:
    import torch

    from qkexport.kv_cache.trials import step_inputs, trial_steps

    vocabulary = int(getattr(model, "get_input_embeddings")().weight.shape[0])  # noqa: B009
    used = next(p.dtype for p in model.parameters() if p.is_floating_point())
    stored = used if dtype is None else getattr(torch, dtype)
    return {
        label: step_inputs(kind, step, layers, vocabulary=vocabulary, dtype=stored, seed=seed)
        for seed, (label, step) in enumerate(trial_steps(_longest_window(model)).items())
    }


def _longest_window(model: nn.Module) -> int:
    config: Any = model.config
    config = config.get_text_config(decoder=True)
    sizes = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min(max((size for size in sizes if size), default=4), _LONGEST_TRIED)


def _dynamic_shapes(kind: KvCache, pasts: int) -> dict[str, Any]:
    from torch.export import Dim

    batch, new = Dim(contract.BATCH, min=1), Dim(contract.NEW, min=1)
    tokens = {0: batch, 1: new}
    if kind is KvCache.CONCAT:
        rows = Dim(contract.PAST, min=0)
        own: dict[str, Any] = {"attention_mask": {0: batch, 1: Dim.AUTO}}
    else:
        rows = Dim(contract.BUFFER, min=1)
        own = {contract.LENGTHS: {0: batch}}
    shapes = {"input_ids": tokens, "position_ids": tokens, **own}
    return {**shapes, "past_key_values": [{0: batch, 2: rows}] * pasts}
