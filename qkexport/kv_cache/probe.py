"""Finds what a causal language model keeps between calls, by running it on two tokens."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import torch

from qkexport.errors import BackendUnavailableError, UnsupportedModelError, UsageError
from qkexport.kv_cache.contract import CacheLayer

if TYPE_CHECKING:
    from torch import nn

_STATES: Final = ("conv", "hybrid", "linear_attention", "mamba", "recurrent")
_NEEDED: Final = ("input_ids", "attention_mask", "position_ids")


def check_causal_lm(name: str, module: nn.Module) -> None:
    """Refuses what is no causal language model of transformers with keys and values to keep.

    Raises:
        BackendUnavailableError: transformers is not installed.
        UsageError: It is another kind of module.
        UnsupportedModelError: It keeps other states, or takes its inputs under other names.
    """
    try:
        from transformers import PreTrainedModel
    except ImportError as error:
        message = "--kv-cache needs transformers, got none installed."
        raise BackendUnavailableError(message, hint="pip install 'qkexport[hf]'.") from error
    if not isinstance(module, PreTrainedModel) or not _generates(module):
        message = f"--kv-cache needs a causal LM of transformers, got {type(module).__name__}."
        hint = "convert a ...ForCausalLM: its folder, a factory that returns it, or a pickled one."
        raise UsageError(message, note=f"source: {name}.", hint=hint)
    parameters = inspect.signature(module.forward).parameters
    missing = [item for item in _NEEDED if item not in parameters]
    if missing:
        message = f"Model {name} must take {', '.join(_NEEDED)}, got none of {missing}."
        raise UnsupportedModelError(message)
    config: Any = module.config.get_text_config(decoder=True)
    states = [kind for kind in getattr(config, "layer_types", None) or () if kind in _STATES]
    if states:
        message = f"Model {name} must keep keys and values only, got layers of {states[0]}."
        hint = "their state has no name in this contract: convert without --kv-cache."
        raise UnsupportedModelError(message, hint=hint)


def _generates(module: Any) -> bool:
    """Whether a model of transformers continues its own tokens."""
    return bool(module.can_generate()) and not module.config.is_encoder_decoder


def cache_layers(name: str, module: nn.Module) -> tuple[CacheLayer, ...]:
    """The layers that keep keys and values, in order.

    Raises:
        UnsupportedModelError: The model cannot run with a plain cache.
    """
    from transformers import DynamicCache

    cache = DynamicCache()
    ids = torch.zeros(1, 2, dtype=torch.int64)
    try:
        with torch.no_grad():
            module(input_ids=ids, use_cache=True, **cache_argument(module, cache))
    except Exception as error:
        text = (str(error).splitlines() or [""])[0]
        message = f"Model {name} must run with a cache, got {type(error).__name__}: {text}."
        raise UnsupportedModelError(message) from error
    kept: Any = cache.layers
    layers = tuple(
        CacheLayer(index, layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3])
        for index, layer in enumerate(kept)
        if layer.is_initialized and layer.keys is not None
    )
    if not layers:
        message = f"Model {name} must keep keys and values between calls, got none."
        raise UnsupportedModelError(message)
    return layers


def cache_argument(module: nn.Module, cache: Any) -> dict[str, Any]:
    """The cache under the name that forward gives it; it changed within transformers 5."""
    parameters = inspect.signature(module.forward).parameters
    is_old = "past_key_values" in parameters and "cache" not in parameters
    return {"past_key_values" if is_old else "cache": cache}
