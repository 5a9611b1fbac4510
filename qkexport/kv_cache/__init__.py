"""Causal language models of transformers with their keys and values as inputs and outputs."""

from qkexport.kv_cache.source import with_kv_cache

__all__ = ["with_kv_cache"]
