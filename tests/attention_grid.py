"""Attentions of realistic head dims such that any two options meet in at least one of them."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping
from typing import Any

import torch
from attention_cases import AttentionCase

from qkexport.spec import AttentionSpec

_BATCH_SIZE, _SEQLEN, _SEQLEN_PAST = 4, 6, 5

OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "dtype": (torch.float32, torch.float16, torch.bfloat16),
    "opset": (17, 20, 23, 24, 25),
    "dynamic": (False, True),
    "rank": (3, 4),
    "heads": ((4, 2), (3, 3)),
    "head_dims": ((64, 64), (64, 32), (20, 20), (512, 512)),
    "qk_norm": ("rms", "layer", "l2"),
    "gain": ("none", "shared", "per head", "hidden", "segmented"),
    "rotary": ("none", "after", "before full", "interleaved part", "table", "per head"),
    "visible": ("all", "upper_left", "lower_right", "window", "causal window"),
    "mask": ("none", "bool", "float32 row", "additive", "windows"),
    "softcap": (0.0, 20.0),
    "head_scale": ("none", "per head", "per query"),
    "cache": ("none", "concat", "static", "lengths"),
    "normalize_key": (True, False),
}


@dataclasses.dataclass(frozen=True)
class GridCase:
    """One attention of the grid and how to lower it."""

    choice: Mapping[str, Any]
    case: AttentionCase

    @property
    def opset(self) -> int:
        return int(self.choice["opset"])

    @property
    def dynamic(self) -> bool:
        return bool(self.choice["dynamic"])

    @property
    def presents(self) -> bool:
        return self.choice["cache"] in ("concat", "static")

    @property
    def label(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.choice.items())


def pairwise_cases() -> list[GridCase]:
    """A covering array of `OPTIONS`, found greedily; the same each time."""
    torch.manual_seed(7)
    return [GridCase(choice, _case(choice)) for choice in _covering_array(random.Random(7))]


def _covering_array(dice: random.Random) -> list[dict[str, Any]]:
    open_pairs = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(OPTIONS, 2)
        for x in range(len(OPTIONS[a]))
        for y in range(len(OPTIONS[b]))
    }
    rows = []
    while open_pairs:
        candidates = [_grown(sorted(open_pairs), dice) for _ in range(20)]
        best = max(candidates, key=lambda row: len(_pairs(row) & open_pairs))
        open_pairs -= _pairs(best)
        rows.append({name: OPTIONS[name][index] for name, index in best.items()})
    return rows


def _grown(open_pairs: list[Any], dice: random.Random) -> dict[str, int]:
    """A row that holds at least one open pair."""
    row = {name: dice.randrange(len(values)) for name, values in OPTIONS.items()}
    row.update(dice.choice(open_pairs))
    return row


def _pairs(row: Mapping[str, int]) -> set[Any]:
    return set(itertools.combinations(row.items(), 2))


def _case(choice: Mapping[str, Any]) -> AttentionCase:
    num_heads, num_kv_heads = choice["heads"]
    head_dim = choice["head_dims"][0]
    spec = AttentionSpec(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        scale=head_dim**-0.5 if choice["qk_norm"] != "l2" else 8.0,
        qk_norm=choice["qk_norm"],
        norm_axis="hidden" if choice["gain"] == "hidden" else "head",  # type: ignore[arg-type]
        normalize_key=choice["normalize_key"],
        rotary=_rotary(choice["rotary"]),
        rotary_dim=16 if choice["rotary"] == "interleaved part" else 0,
        rotary_interleaved=choice["rotary"] == "interleaved part",
        causal=_causal(choice["visible"]),
        window_left=3 if "window" in choice["visible"] else -1,
        softcap=choice["softcap"],
        kv_cache="static" if choice["cache"] == "static" else "concat",  # type: ignore[arg-type]
    )
    inputs = _projections(choice) | _gains(choice) | _caches(choice) | _past(choice)
    inputs |= _score_inputs(choice)
    return AttentionCase(spec, inputs)


def _causal(visible: str) -> Any:
    return {"all": "none", "window": "none", "causal window": "upper_left"}.get(visible, visible)


def _rotary(name: str) -> Any:
    return {"none": "none", "before full": "before_norm"}.get(name, "after_norm")


def _projections(choice: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    num_heads, num_kv_heads = choice["heads"]
    head_dim, head_dim_v = choice["head_dims"]
    widths = {
        "query": (num_heads, head_dim),
        "key": (num_kv_heads, head_dim),
        "value": (num_kv_heads, head_dim_v),
    }
    return {name: _projection(choice, *width) for name, width in widths.items()}


def _projection(choice: Mapping[str, Any], num_heads: int, head_dim: int) -> torch.Tensor:
    x = torch.randn(_BATCH_SIZE, num_heads, _SEQLEN, head_dim).to(choice["dtype"])
    return x if choice["rank"] == 4 else x.transpose(1, 2).flatten(2)


def _gains(choice: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    (num_heads, num_kv_heads), (head_dim, _) = choice["heads"], choice["head_dims"]
    inputs: dict[str, torch.Tensor] = {}
    if choice["gain"] == "none":
        return inputs
    for side, count in (("q", num_heads), ("k", num_kv_heads))[: 1 + choice["normalize_key"]]:
        shapes = {
            "shared": (head_dim,),
            "per head": (count, head_dim),
            "hidden": (count * head_dim,),
            "segmented": (2, head_dim),
        }
        inputs[f"{side}_norm_weight"] = torch.randn(shapes[choice["gain"]]).to(choice["dtype"])
    if choice["qk_norm"] == "layer":
        inputs["q_norm_bias"] = torch.randn_like(inputs["q_norm_weight"])
    if choice["gain"] == "segmented":
        inputs["segment_ends"] = torch.tensor([2, _SEQLEN])
    return inputs


def _caches(choice: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    head_dim = choice["head_dims"][0]
    shapes = {
        "after": (1, _SEQLEN, head_dim // 2),
        "before full": (1, _SEQLEN, head_dim),
        "interleaved part": (_BATCH_SIZE, _SEQLEN, 8),
        "table": (11, head_dim // 2),
        "per head": (1, 1, _SEQLEN, head_dim // 2),
    }
    if choice["rotary"] not in shapes:
        return {}
    angles = torch.randn(shapes[choice["rotary"]])
    inputs = {"cos_cache": angles.cos(), "sin_cache": angles.sin()}
    inputs = {name: cache.to(choice["dtype"]) for name, cache in inputs.items()}
    if choice["rotary"] == "table":
        inputs["position_ids"] = torch.tensor([[0, 3, 10, 9, 1, 1]])
    return inputs


def _past(choice: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    inputs: dict[str, torch.Tensor] = {}
    if choice["cache"] in ("concat", "static"):
        rows = _SEQLEN_PAST + (_SEQLEN if choice["cache"] == "static" else 0)
        leading = (_BATCH_SIZE, choice["heads"][1], rows)
        for name, width in zip(("past_key", "past_value"), choice["head_dims"], strict=True):
            inputs[name] = torch.randn(*leading, width).to(choice["dtype"])
    if choice["cache"] in ("static", "lengths"):
        inputs["kv_lengths"] = (
            torch.tensor([6, 5, 0, 4]) + inputs.get("past_key", torch.empty(0, 0, 0)).shape[2]
        )
    return inputs


def _score_inputs(choice: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    inputs: dict[str, torch.Tensor] = {}
    total = _SEQLEN + (_SEQLEN_PAST if choice["cache"] in ("concat", "static") else 0)
    full = (_BATCH_SIZE, 1, _SEQLEN, total)
    if choice["mask"] == "bool":
        inputs["attn_mask"] = torch.rand(full) > 0.4
    elif choice["mask"] == "windows":
        inputs["attn_mask"] = torch.rand(2, *full[1:]) > 0.4
    elif choice["mask"] == "float32 row":
        inputs["attn_mask"] = torch.randn(1, 1, 1, total)
    elif choice["mask"] == "additive":
        mask = torch.randn(full).to(choice["dtype"])
        inputs["attn_mask"] = mask.masked_fill(mask < -0.5, -torch.inf)
    if choice["head_scale"] == "per head":
        inputs["head_scale"] = torch.rand(choice["heads"][0]) + 0.5
    elif choice["head_scale"] == "per query":
        inputs["head_scale"] = torch.rand(_BATCH_SIZE, 1, _SEQLEN, 1) + 0.5
    return inputs
