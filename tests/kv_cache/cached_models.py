"""Tiny causal LMs, their converted files in ONNX Runtime, and greedy generation with both."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import torch
from transformers import DynamicCache
from zoo.language import causal_lm

from qkexport.native import register_ort

Array = npt.NDArray[Any]

# Mixed layers, and a window that generation runs out of.
MODELS: dict[str, dict[str, Any]] = {
    "qwen3": {"tie_word_embeddings": True},
    "gemma3_text": {
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 24,
    },
    "olmo2": {"num_hidden_layers": 1},
}


def tiny(model_type: str, implementation: str = "sdpa", **options: Any) -> Any:
    """A random-weight model, the same at every call."""
    torch.manual_seed(59)
    model = causal_lm(model_type, implementation, **(MODELS.get(model_type, {}) | options)).module
    for parameter in model.parameters():  # initial weights give logits that hardly differ
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def session(path: Path, *, fused: bool) -> ort.InferenceSession:
    """A session on the function bodies, or on the fused kernel."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if fused:
        register_ort(options)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@dataclasses.dataclass
class Growing:
    """A `concat` model between two calls.

    Attributes:
        session: The model.
        mask: [B,P], 1 for tokens.
        kept: Pasts by input name.
    """

    session: ort.InferenceSession
    mask: Array
    kept: dict[str, Array]

    @classmethod
    def empty(cls, session: ort.InferenceSession, batch_size: int) -> Growing:
        kept = {
            item.name: np.zeros((batch_size, item.shape[1], 0, item.shape[3]), _numpy(item.type))
            for item in session.get_inputs()
            if item.name.startswith("past_key_values.")
        }
        return cls(session, np.zeros((batch_size, 0), np.int64), kept)

    def step(self, ids: Array, mask: Array | None = None) -> Array:
        """Logits [B,S,V] of new tokens; what is kept grows by them."""
        new = np.ones_like(ids) if mask is None else mask
        self.mask = np.concatenate([self.mask, new], axis=1)
        positions = np.maximum(self.mask.cumsum(axis=1) - 1, 0)[:, -ids.shape[1] :]
        feeds = {
            "input_ids": ids, "attention_mask": self.mask, "position_ids": positions, **self.kept
        }  # fmt: skip
        logits, *presents = self.session.run(None, feeds)
        self.kept = dict(zip(self.kept, presents, strict=True))
        return np.asarray(logits)


@dataclasses.dataclass
class Buffers:
    """A `static` model between two calls.

    Attributes:
        session: The model.
        lengths: [B], valid rows.
        kept: Buffers by input name.
    """

    session: ort.InferenceSession
    lengths: Array
    kept: dict[str, Array]

    @classmethod
    def empty(cls, session: ort.InferenceSession, batch_size: int, rows: int) -> Buffers:
        rng = np.random.default_rng(0)  # rows that are not valid may hold anything finite
        kept = {
            item.name: rng.normal(size=(batch_size, item.shape[1], rows, item.shape[3])).astype(
                _numpy(item.type)
            )
            for item in session.get_inputs()
            if item.name.startswith("past_key_values.")
        }
        return cls(session, np.zeros(batch_size, np.int64), kept)

    def step(self, ids: Array, new: Array | None = None) -> Array:
        """Logits [B,S,V]; `new` of the last ids of each entry are tokens, those before padding."""
        count = ids.shape[1]
        self.lengths = self.lengths + (count if new is None else new)
        places = np.arange(count) + self.lengths[:, None] - count
        feeds = {
            "input_ids": ids,
            "position_ids": np.maximum(places, 0),
            "kv_lengths": self.lengths,
            **self.kept,
        }
        logits, *presents = self.session.run(None, feeds)
        self.kept = dict(zip(self.kept, presents, strict=True))
        return np.asarray(logits)


def left_padded(lengths: tuple[int, ...], seed: int = 0) -> tuple[Array, Array]:
    """(ids, mask) [B,S] of prompts of these lengths."""
    rng = np.random.default_rng(seed)
    longest = max(lengths)
    ids = rng.integers(3, 64, (len(lengths), longest))
    mask = (np.arange(longest) >= longest - np.array(lengths)[:, None]).astype(np.int64)
    return ids, mask


def torch_greedy(model: Any, ids: Array, mask: Array, count: int) -> Array:
    """What transformers' own generate appends, [B,count]."""
    model.generation_config.eos_token_id = None
    tokens = model.generate(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(mask),
        max_new_tokens=count,
        do_sample=False,
        use_cache=True,
    )
    return np.asarray(tokens[:, ids.shape[1] :])


def torch_logits(model: Any, pieces: list[Array]) -> Array:
    """Logits of a sequence that arrives in pieces, with transformers' own cache."""
    cache = DynamicCache(config=model.config)
    found = []
    with torch.no_grad():
        for ids in pieces:
            result = model(input_ids=torch.from_numpy(ids), cache=cache, use_cache=True)
            found.append(result.logits.float().numpy())
    return np.concatenate(found, axis=1)


def _numpy(kind: str) -> Any:
    return np.float16 if "float16" in kind else np.float32
