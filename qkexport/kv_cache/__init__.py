"""Causal language models of transformers with their keys and values as inputs and outputs."""

from qkexport.kv_cache.source import lacks_kv_cache, with_kv_cache

__all__ = ["lacks_kv_cache", "with_kv_cache"]
