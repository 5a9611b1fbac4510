"""Random attention graphs in many spellings, and mutants that look like QK norm but are not.

A `Plan` is drawn first: which spelling each part has, and at most one mutation. `build` writes the
plan as an ONNX model. Symbols: B batch, S query tokens, T key tokens, H / G query and key heads, D
head_dim.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

NORMS: Final = ("rms_reciprocal", "rms_div", "rms_pow", "rms_op", "layer_op", "layer_written",
                "layer_sub_rms_op", "l2_clip", "l2_max", "l2_sum", "l2_inverse")  # fmt: skip
LAYOUTS: Final = ("bshd", "bhsd", "merged", "hidden")
GAINS: Final = ("none", "channel", "head_channel", "one_plus")
ROPES: Final = ("none", "half", "half_flipped", "interleaved", "partial", "op", "scatter", "prefix")
REPEATS: Final = ("expand", "gather", "broadcast")
KEYS: Final = ("transpose", "reshape", "einsum")
SCALES: Final = ("logits_mul", "logits_div", "both_sides", "query")
TEMPERATURES: Final = ("none", "head_logits", "head_query", "token_query")
MASKS: Final = ("none", "added", "where_inf", "where_low", "where_added", "drop", "bias_and_window")
MUTATIONS: Final = (
    "norm_axis", "mean_kept", "epsilon_outside", "gain_after_rope", "channel_scale_after_rope",
    "key_only", "epsilons_differ", "kinds_differ", "softmax_axis", "tiled_heads", "one_sign",
    "mispaired", "trailing_rotation", "heads_mixed", "clipped", "squared_gain_by_token",
    "key_by_token", "probabilities_scaled", "offset_query", "last_head_unnormed", "mask_low",
)  # fmt: skip

# Mutations that no operator of this contract can express, wherever they take effect.
NEVER_FUSED: Final = (
    "norm_axis", "clipped", "key_only", "kinds_differ", "softmax_axis", "key_by_token",
    "squared_gain_by_token", "probabilities_scaled",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Plan:
    """One graph: a choice for every part."""

    norm: str
    layout: str
    gain: str
    bias: bool
    rope: str
    rope_first: bool
    repeat: str
    key: str
    scale: str
    temperature: str
    mask: str
    softcap: bool
    guard: bool
    fused_attention: bool
    batch: int
    query_tokens: int
    key_tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dynamic: bool
    past: bool
    mutation: str = "none"

    @property
    def epsilons_cannot_agree(self) -> bool:
        """The epsilon of a sum of squares is epsilon / N as a mean's, and N differs."""
        return self.norm == "l2_sum" and self.layout == "hidden" and self.heads != self.kv_heads


def draw(seed: int, *, mutate: bool, mutations: Sequence[str] = MUTATIONS) -> Plan:
    """A random plan; choices that exclude each other are settled here."""
    rng = random.Random(seed)
    kv_heads = rng.choice((1, 2, 3))
    norm = rng.choice(NORMS)
    layout = rng.choice(LAYOUTS)
    rope = rng.choice(ROPES)
    tokens = rng.randint(2, 6)
    past = rng.random() < 0.15
    crossed = rope == "none" and not past and rng.random() < 0.4
    fused = rng.random() < 0.4
    rope_first = rope != "none" and rng.random() < 0.3 and layout != "hidden"
    mask = rng.choice(MASKS)
    if past and mask == "bias_and_window":
        mask = "added"
    if crossed and mask == "bias_and_window":
        mask = "where_added"
    return Plan(
        norm=norm,
        layout=layout,
        gain=rng.choice(GAINS),
        bias=rng.random() < 0.2,
        rope=rope,
        rope_first=rope_first,
        repeat=rng.choice(REPEATS),
        key=rng.choice(KEYS),
        scale=rng.choice(SCALES),
        temperature=rng.choice(TEMPERATURES),
        mask=mask,
        softcap=rng.random() < 0.2,
        guard=rng.random() < 0.3,
        fused_attention=fused,
        batch=2 if mask == "bias_and_window" else rng.randint(1, 3),
        query_tokens=tokens,
        key_tokens=tokens + rng.randint(1, 4) if crossed else tokens,
        heads=kv_heads * rng.choice((1, 1, 2, 3)),
        kv_heads=kv_heads,
        head_dim=rng.choice((4, 8)),
        value_dim=rng.choice((3, 4, 8)),
        dynamic=rng.random() < 0.5
        and rope not in ("scatter", "prefix")
        and mask != "bias_and_window",
        past=past,
        mutation=rng.choice(mutations) if mutate else "none",
    )


class _Writer:
    """Appends nodes; every method returns the name of its result."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.weights)}"
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *items: int) -> str:
        return self.const(items, np.int64)

    def draw(self, *shape: int) -> str:
        return self.const(self.rng.uniform(0.5, 1.5, shape))

    def linear(self, x: str, width: int, out: int) -> str:
        return self.op("MatMul", x, self.const(self.rng.normal(size=(width, out)) / width**0.5))

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=perm)

    def slice(self, x: str, start: int, end: int, axis: int, step: int = 1) -> str:
        bounds = (self.ints(start), self.ints(end), self.ints(axis), self.ints(step))
        return self.op("Slice", x, *bounds)


_WIDTH: Final = 10
_OPSET: Final = 24


def build(plan: Plan, seed: int) -> onnx.ModelProto:
    """The plan as a model with inputs x [B,S,10], y [B,T,10] and, where it needs them, others."""
    return _Builder(plan, seed).model()


class _Builder:
    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.w = _Writer(np.random.default_rng(seed))
        self.inputs: dict[str, list[int | str]] = {}
        self.outputs: list[str] = []
        self._cached: dict[Any, tuple[str, str]] = {}
        self._normed_width = 0

    def model(self) -> onnx.ModelProto:
        p = self.plan
        batch, rows, columns = self._dims()
        self.inputs["x"] = [batch, rows, _WIDTH]
        crossed = p.key_tokens != p.query_tokens
        if crossed:
            self.inputs["y"] = [batch, columns, _WIDTH]
        source = "y" if crossed else "x"
        query = self._side("x", p.heads, is_key=False)
        key = self._side(source, p.kv_heads, is_key=True)
        value = self._value(source)
        if p.past:
            key, value = (
                self._with_past(key, "k", p.head_dim),
                self._with_past(value, "v", p.value_dim),
            )
        result = self._attention(query, key, value)
        merged = self.w.reshape(self.w.transpose(result, 0, 2, 1, 3), 0, 0, p.heads * p.value_dim)
        self.outputs.insert(0, self.w.op("Identity", merged))
        return self._finished()

    def _dims(self) -> tuple[int | str, int | str, int | str]:
        p = self.plan
        if p.dynamic:
            return "batch", "rows", "columns" if p.key_tokens != p.query_tokens else "rows"
        return p.batch, p.query_tokens, p.key_tokens

    def _finished(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.w.nodes,
            "fuzz",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT if n != "keep" else TensorProto.BOOL, s)
             for n, s in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            self.w.weights,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = 10
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    # Query and key, [B,S,10] -> [B,H,S,D]

    def _side(self, x: str, heads: int, *, is_key: bool) -> str:
        p, w = self.plan, self.w
        raw = w.linear(x, _WIDTH, heads * p.head_dim)
        if p.layout == "hidden":
            return self._hidden(raw, heads, is_key=is_key)
        tokens = p.key_tokens if is_key else p.query_tokens
        shape = {"bshd": (0, 0, heads, p.head_dim), "bhsd": (0, 0, heads, p.head_dim),
                 "merged": (-1, heads, p.head_dim)}[p.layout]  # fmt: skip
        x = w.reshape(raw, *shape)
        if p.layout == "bhsd":
            x = w.transpose(x, 0, 2, 1, 3)
        back = self._to_bhsd(raw, heads)
        if p.rope_first and p.layout != "merged":
            x = self._rope(x, heads, tokens, is_key=is_key, head_axis=self._head_axis())
        x = self._normed(x, heads, is_key=is_key)
        x = back(x)
        if not (p.rope_first and p.layout != "merged"):
            x = self._rope(x, heads, tokens, is_key=is_key, head_axis=1)
        return self._after(x, heads, is_key=is_key)

    def _head_axis(self) -> int:
        return 1 if self.plan.layout == "bhsd" else 2

    def _to_bhsd(self, raw: str, heads: int) -> Any:
        p, w = self.plan, self.w

        def back(x: str) -> str:
            if p.layout == "bhsd":
                return x
            if p.layout == "merged":
                lead = w.op("Shape", raw, start=0, end=2)
                shape = w.op("Concat", lead, w.ints(heads, p.head_dim), axis=0)
                x = w.op("Reshape", x, shape)
            return str(w.transpose(x, 0, 2, 1, 3))

        return back

    def _hidden(self, raw: str, heads: int, *, is_key: bool) -> str:
        p, w = self.plan, self.w
        x = self._normed(raw, heads, is_key=is_key)
        x = w.transpose(w.reshape(x, 0, 0, heads, p.head_dim), 0, 2, 1, 3)
        tokens = p.key_tokens if is_key else p.query_tokens
        x = self._rope(x, heads, tokens, is_key=is_key, head_axis=1)
        return self._after(x, heads, is_key=is_key)

    def _normed(self, x: str, heads: int, *, is_key: bool) -> str:
        p, w = self.plan, self.w
        if p.mutation == "key_only" and not is_key:
            return x
        self._normed_width = p.head_dim * (heads if p.layout == "hidden" else 1)
        epsilon = 1e-2 if p.mutation == "epsilons_differ" and is_key else 1e-5
        kind = p.norm
        if p.mutation == "kinds_differ" and is_key:
            kind = "l2_clip" if not p.norm.startswith("l2") else "rms_div"
        axis = -1 if p.mutation != "norm_axis" else (-2 if p.layout != "hidden" else 1)
        if p.mutation == "last_head_unnormed" and p.layout in ("bshd",) and heads > 1:
            first = w.slice(x, 0, heads - 1, 2)
            rest = w.slice(x, heads - 1, heads, 2)
            x = w.op("Concat", self._norm(kind, first, axis, epsilon), rest, axis=2)
        else:
            x = self._norm(kind, x, axis, epsilon)
        return self._gained(x, heads)

    def _norm(self, kind: str, x: str, axis: int, epsilon: float) -> str:
        p, w = self.plan, self.w
        if kind in ("rms_op", "layer_op", "layer_sub_rms_op"):
            if axis != -1:
                return self._norm("rms_div", x, axis, epsilon)
            return self._norm_op(kind, x, epsilon)
        if kind.startswith("l2"):
            return self._l2(kind, x, axis, epsilon)
        axes = w.ints(axis)
        source = x
        if kind == "layer_written":
            source = w.op("Sub", x, w.op("ReduceMean", x, axes))
        squared = (
            w.op("Pow", source, w.const(2.0)) if kind != "rms_div" else w.op("Mul", source, source)
        )
        mean = w.op("ReduceMean", squared, axes)
        if p.mutation == "mean_kept" and kind == "layer_written":
            source = x
        if p.mutation == "epsilon_outside":
            return w.op("Div", source, w.op("Add", w.op("Sqrt", mean), w.const(0.05)))
        inside = w.op("Add", mean, w.const(epsilon))
        if kind == "rms_pow":
            return w.op("Mul", source, w.op("Pow", inside, w.const(-0.5)))
        root = w.op("Sqrt", inside)
        if kind == "rms_reciprocal":
            return w.op("Mul", source, w.op("Reciprocal", root))
        return w.op("Div", source, root)

    def _norm_op(self, kind: str, x: str, epsilon: float) -> str:
        w, width = self.w, self._normed_width
        if kind == "layer_sub_rms_op":
            x = w.op("Sub", x, w.op("ReduceMean", x, w.ints(-1)))
        if kind == "layer_op":
            return w.op(
                "LayerNormalization", x, w.draw(width), w.draw(width), axis=-1, epsilon=epsilon
            )
        return w.op("RMSNormalization", x, w.draw(width), axis=-1, epsilon=epsilon)

    def _l2(self, kind: str, x: str, axis: int, epsilon: float) -> str:
        p, w = self.plan, self.w
        axes = w.ints(axis)
        if kind == "l2_sum":
            total = w.op("ReduceSum", w.op("Mul", x, x), axes)
            return w.op(
                "Mul", x, w.op("Reciprocal", w.op("Sqrt", w.op("Add", total, w.const(epsilon))))
            )
        norm = w.op("ReduceL2", x, axes)
        if p.mutation == "epsilon_outside":
            return w.op("Div", x, w.op("Add", norm, w.const(0.05)))
        floor = (
            w.op("Max", norm, w.const(epsilon))
            if kind == "l2_max"
            else w.op("Clip", norm, w.const(epsilon))
        )
        if kind == "l2_inverse":
            return w.op("Mul", w.op("Div", w.const(2.0), floor), x)
        return w.op("Div", x, floor)

    def _gained(self, x: str, heads: int) -> str:
        p, w = self.plan, self.w
        if p.gain == "none":
            return x
        x = w.op("Mul", x, self._parameter(heads))
        return w.op("Add", x, self._parameter(heads)) if p.bias else x

    def _parameter(self, heads: int) -> str:
        p, w = self.plan, self.w
        if p.layout == "hidden":
            shape: tuple[int, ...] = (heads * p.head_dim,)
        elif p.gain == "head_channel":
            shape = {"bhsd": (heads, 1, p.head_dim)}.get(p.layout, (heads, p.head_dim))
        else:
            shape = (p.head_dim,)
        drawn = w.draw(*shape)
        return w.op("Add", drawn, w.const(1.0)) if p.gain == "one_plus" else drawn

    # Rotation of [.., D] with tokens on the axis that is not the heads'

    def _rope(self, x: str, heads: int, tokens: int, *, is_key: bool, head_axis: int) -> str:
        p, w = self.plan, self.w
        kind = p.rope
        if kind == "none":
            return x
        if kind == "op" and head_axis != 1:
            kind = "half"
        if p.mutation == "trailing_rotation":
            half = p.head_dim // 2
            still, moved = w.slice(x, 0, half, 3), w.slice(x, half, p.head_dim, 3)
            return w.op(
                "Concat", still, self._turned("half", moved, half, tokens, head_axis), axis=3
            )
        if kind == "partial":
            half = p.head_dim // 2
            moved, still = w.slice(x, 0, half, 3), w.slice(x, half, p.head_dim, 3)
            return w.op(
                "Concat", self._turned("half", moved, half, tokens, head_axis), still, axis=3
            )
        if kind == "prefix":
            row = 3 - head_axis
            still, moved = w.slice(x, 0, 1, row), w.slice(x, 1, 2**40, row)
            moved = self._turned("interleaved", moved, p.head_dim, tokens - 1, head_axis)
            return w.op("Concat", still, moved, axis=row)
        return self._turned(kind, x, p.head_dim, tokens, head_axis)

    def _angles(self, width: int, tokens: int, head_axis: int) -> tuple[str, str]:
        """cos and sin, computed from positions so that dynamic lengths work."""
        p, w = self.plan, self.w
        place = (width, tokens, head_axis)
        if place in self._cached:
            return self._cached[place]
        if p.dynamic:
            total = w.op("Shape", "x", start=1, end=2)
            length = w.op("Squeeze", total)
            positions = w.op(
                "Cast", w.op("Range", w.const(0, np.int64), length, w.const(1, np.int64)), to=1
            )
            column = w.op("Unsqueeze", positions, w.ints(1))
        else:
            column = w.const(np.arange(tokens)[:, None])
        angle = w.op("Mul", column, w.draw(1, width))
        axes = w.ints(0, 1) if head_axis == 1 else w.ints(0, 2)
        pair = tuple(w.op("Unsqueeze", w.op(name, angle), axes) for name in ("Cos", "Sin"))
        self._cached[place] = (pair[0], pair[1])
        return self._cached[place]

    def _turned(self, kind: str, x: str, width: int, tokens: int, head_axis: int) -> str:
        p, w = self.plan, self.w
        half = width // 2
        if kind in ("op", "scatter", "interleaved"):
            cos, sin = self._angles(half, tokens, head_axis)
        else:
            cos, sin = self._angles(width, tokens, head_axis)
        if kind == "op":
            flat = [
                w.op(
                    "Expand",
                    w.op("Squeeze", a, w.ints(1)),
                    w.op("Concat", w.op("Shape", x, start=0, end=1), w.ints(1, 1), axis=0),
                )
                for a in (cos, sin)
            ]
            return w.op("RotaryEmbedding", x, flat[0], flat[1])
        if kind in ("half", "half_flipped"):
            left, right = w.slice(x, 0, half, 3), w.slice(x, half, width, 3)
            parts = [w.op("Neg", right), left] if kind == "half" else [right, w.op("Neg", left)]
            if p.mutation == "one_sign":
                parts = [right, left]
            if p.mutation == "mispaired":
                parts = [w.op("Neg", left), right]
            turned = w.op("Concat", *parts, axis=-1)
            return w.op("Add", w.op("Mul", x, cos), w.op("Mul", turned, sin))
        even, odd = w.slice(x, 0, width, 3, 2), w.slice(x, 1, width, 3, 2)
        first = w.op("Sub", w.op("Mul", even, cos), w.op("Mul", odd, sin))
        second = w.op("Add", w.op("Mul", even, sin), w.op("Mul", odd, cos))
        if p.mutation == "one_sign":
            first = w.op("Add", w.op("Mul", even, cos), w.op("Mul", odd, sin))
        if kind == "scatter" and not p.dynamic:
            return self._scattered(first, second, width)
        parts = [w.op("Unsqueeze", item, w.ints(-1)) for item in (first, second)]
        if p.mutation == "mispaired":
            parts.reverse()
        stacked = w.op("Concat", *parts, axis=-1)
        return w.op(
            "Reshape",
            stacked,
            w.op("Concat", w.op("Shape", x, start=0, end=3), w.ints(width), axis=0),
        )

    def _scattered(self, first: str, second: str, width: int) -> str:
        w = self.w
        shape = w.op("Concat", w.ints(width), w.op("Shape", first, start=1, end=3),
                     w.op("Shape", first, start=0, end=1), axis=0)  # fmt: skip
        data = w.op("ConstantOfShape", shape)
        for start, part in ((0, first), (1, second)):
            rows = w.const(np.arange(start, width, 2)[:, None], np.int64)
            data = w.op("ScatterND", data, rows, w.transpose(part, 3, 1, 2, 0))
        return w.transpose(data, 3, 1, 2, 0)

    def _after(self, x: str, heads: int, *, is_key: bool) -> str:
        """What stands between rotation and scores."""
        p, w = self.plan, self.w
        if p.mutation in ("gain_after_rope", "channel_scale_after_rope") and not is_key:
            x = w.op("Mul", x, w.draw(p.head_dim))
        if p.mutation == "heads_mixed" and not is_key:
            order = w.const(np.roll(np.arange(heads), 1), np.int64)
            x = w.op("Gather", x, order, axis=1)
        if p.mutation == "clipped":
            x = w.op("Clip", x, w.const(-0.7), w.const(0.7))
        if p.mutation == "offset_query" and not is_key:
            x = w.op("Add", x, w.draw(p.head_dim))
        if p.mutation == "key_by_token" and is_key:
            x = w.op("Mul", x, w.op("ReduceMean", x, w.ints(3)))
        if p.mutation == "squared_gain_by_token" and not is_key:
            x = w.op("Mul", x, x)
        if p.temperature == "head_query" and not is_key:
            x = w.op("Mul", x, w.draw(heads, 1, 1))
        if p.temperature == "token_query" and not is_key:
            self.inputs.setdefault("heat", [1, 1, *self.inputs["x"][1:2], 1])
            x = w.op("Mul", x, "heat")
        if p.scale == "query" and not is_key:
            x = w.op("Mul", x, w.const(0.7))
        return x

    # Values, cache and scores

    def _value(self, source: str) -> str:
        p, w = self.plan, self.w
        value = w.linear(source, _WIDTH, p.kv_heads * p.value_dim)
        return str(w.transpose(w.reshape(value, 0, 0, p.kv_heads, p.value_dim), 0, 2, 1, 3))

    def _with_past(self, x: str, name: str, width: int) -> str:
        p = self.plan
        batch = self.inputs["x"][0]
        self.inputs[f"past_{name}"] = [batch, p.kv_heads, "past" if p.dynamic else 3, width]
        joined = self.w.op("Concat", f"past_{name}", x, axis=2)
        present = self.w.op("Identity", joined)
        self.outputs.append(present)
        return str(joined)

    def _repeated(self, x: str, width: int) -> str:
        p, w = self.plan, self.w
        times = p.heads // p.kv_heads
        if times == 1 or (p.repeat == "broadcast" and p.kv_heads == 1):
            return x
        if p.repeat == "gather":
            rows = np.repeat(np.arange(p.kv_heads), times)
            if p.mutation == "tiled_heads":
                rows = np.tile(np.arange(p.kv_heads), times)
            return str(w.op("Gather", x, w.const(rows, np.int64), axis=1))
        axis = 1 if p.mutation == "tiled_heads" else 2
        wide = w.op("Unsqueeze", x, w.ints(axis))
        copies = [1, 1, 1, 1, 1]
        copies[axis] = times
        wide = w.op("Expand", wide, w.ints(*copies))
        shape = w.op("Concat", w.op("Shape", x, start=0, end=1), w.ints(p.heads),
                     w.op("Shape", x, start=2, end=3), w.ints(width), axis=0)  # fmt: skip
        return str(w.op("Reshape", wide, shape))

    def _attention(self, query: str, key: str, value: str) -> str:
        p = self.plan
        key, value = self._repeated(key, p.head_dim), self._repeated(value, p.value_dim)
        plain = p.mask in ("none", "added", "where_inf") and p.temperature != "head_logits"
        same = p.repeat != "broadcast" or p.kv_heads != 1 or p.heads == 1
        if p.fused_attention and plain and same and p.mutation not in _SCORE_MUTATIONS:
            return self._attention_op(query, key, value)
        return self._attention_written(query, key, value)

    def _attention_op(self, query: str, key: str, value: str) -> str:
        p, w = self.plan, self.w
        mask = (
            "" if p.mask == "none" else self._mask_input("added" if p.mask == "added" else "keep")
        )
        if mask:
            shape = w.op("Concat", w.ints(1, 1), w.op("Shape", query, start=2, end=3),
                         w.op("Shape", key, start=2, end=3), axis=0)  # fmt: skip
            mask = w.op("Expand", mask, shape)
        attributes = {"scale": 0.4, "softcap": 5.0 if p.softcap else 0.0}
        inputs = [query, key, value, mask] if mask else [query, key, value]
        return str(w.op("Attention", *inputs, **attributes))

    def _attention_written(self, query: str, key: str, value: str) -> str:
        p, w = self.plan, self.w
        scores = self._scores(query, key)
        if p.temperature == "head_logits":
            scores = w.op("Mul", scores, w.draw(p.heads, 1, 1))
        if p.softcap:
            scores = w.op("Mul", w.const(5.0), w.op("Tanh", w.op("Div", scores, w.const(5.0))))
        scores = self._masked(scores)
        axis = -2 if p.mutation == "softmax_axis" else -1
        weights = w.op("Softmax", scores, axis=axis)
        if p.guard:
            weights = w.op("Where", w.op("IsNaN", weights), w.const(0.0), weights)
        if p.mutation == "probabilities_scaled":
            weights = w.op("Mul", weights, w.draw(p.heads, 1, 1))
        if p.key == "einsum" and not (p.repeat == "broadcast" and p.kv_heads == 1 and p.heads > 1):
            return str(w.op("Einsum", weights, value, equation="bhij,bhjd->bhid"))
        return str(w.op("MatMul", weights, value))

    def _scores(self, query: str, key: str) -> str:
        p, w = self.plan, self.w
        broadcast = p.repeat == "broadcast" and p.kv_heads == 1 and p.heads > 1
        if p.scale == "both_sides":
            query, key = w.op("Mul", query, w.const(0.6)), w.op("Mul", key, w.const(0.6))
        if p.key == "einsum" and not broadcast:
            scores = w.op("Einsum", query, key, equation="bhid,bhjd->bhij")
        else:
            scores = w.op("MatMul", query, self._key_transposed(key))
        if p.scale == "logits_mul":
            scores = w.op("Mul", scores, w.const(0.35))
        if p.scale == "logits_div":
            scores = w.op("Div", scores, w.const(2.5))
        return str(scores)

    def _key_transposed(self, key: str) -> str:
        p, w = self.plan, self.w
        if p.key == "transpose" or (p.repeat == "broadcast" and p.kv_heads == 1):
            return str(w.transpose(key, 0, 1, 3, 2))
        shape = w.op("Shape", key)
        rows, lead = (
            w.op("Slice", shape, w.ints(-2), w.ints(-1)),
            w.op("Slice", shape, w.ints(0), w.ints(2)),
        )
        flat = w.op("Reshape", key, w.op("Concat", w.ints(-1), rows, w.ints(p.head_dim), axis=0))
        turned = w.transpose(flat, 0, 2, 1)
        return str(w.op("Reshape", turned, w.op("Concat", lead, w.ints(p.head_dim), rows, axis=0)))

    def _mask_input(self, name: str) -> str:
        columns: int | str = self.inputs.get("y", self.inputs["x"])[1]
        if self.plan.past:
            columns = "total" if self.plan.dynamic else int(columns) + 3
        self.inputs[name] = [1, 1, self.inputs["x"][1], columns]
        return name

    def _masked(self, scores: str) -> str:
        p, w = self.plan, self.w
        if p.mask == "none":
            return scores
        if p.mask == "added":
            return str(w.op("Add", scores, self._mask_input("added")))
        if p.mask == "bias_and_window":
            return self._windowed(scores)
        keep = self._mask_input("keep")
        fill = w.const(-5.0 if p.mutation == "mask_low" else -1e9)
        if p.mask == "where_inf":
            return str(w.op("Where", keep, scores, w.const(-np.inf)))
        if p.mask == "where_low":
            return str(w.op("Where", keep, scores, fill))
        if p.mask == "drop":
            return str(w.op("Where", w.op("Not", keep), fill, scores))
        return str(w.op("Add", scores, w.op("Where", keep, w.const(0.0), w.const(-3e38))))

    def _windowed(self, scores: str) -> str:
        p, w = self.plan, self.w
        size = p.query_tokens, p.key_tokens
        scores = w.op("Add", scores, w.draw(1, p.heads, *size))
        split = w.reshape(scores, 1, 2, p.heads, *size)
        split = w.op("Add", split, w.draw(1, 2, 1, *size))
        return str(w.reshape(split, -1, p.heads, *size))


_SCORE_MUTATIONS: Final = ("softmax_axis", "probabilities_scaled", "mask_low", "tiled_heads")


def feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int) -> dict[str, Array]:
    """Random inputs; every row of a mask keeps its first column."""
    rng = np.random.default_rng(seed)
    result: dict[str, Array] = {}
    for value in model.graph.input:
        shape = [_size(dim, sizes) for dim in value.type.tensor_type.shape.dim]
        array: Array = rng.normal(size=shape).astype(np.float32)
        if value.name == "keep":
            array = array > 0
            array[..., 0] = True
        result[value.name] = array
    return result


def _size(dim: Any, sizes: dict[str, int]) -> int:
    return sizes[dim.dim_param] if dim.dim_param else int(dim.dim_value)


def sizes_of(plan: Plan, change: int = 0) -> dict[str, int]:
    """Values of the dynamic dimensions, `change` larger than planned."""
    rows, columns = plan.query_tokens + change, plan.key_tokens + change
    past = 3 + change
    return {"batch": plan.batch + change, "rows": rows, "columns": columns, "past": past,
            "total": columns + past}  # fmt: skip
