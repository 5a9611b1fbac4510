"""The ways to run one QK-norm attention on a CPU that the benchmark compares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper

from qkexport.native import register_ort
from qkexport.spec import OP_DOMAIN, OP_TYPE, AttentionSpec, Causal, KvCache, NormAxis, QkNorm

Run = Callable[[], None]
EPSILON: Final = 1e-6
PROVIDERS: Final = ["CPUExecutionProvider"]
TYPES: Final = {torch.float32: TensorProto.FLOAT, torch.bfloat16: TensorProto.BFLOAT16}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One attention: query `[B,Sq,H*D]`, key and value `[B,Skv,Hkv*D]`.

    Attributes:
        cache_rows: Rows of a static cache that the last Sq of are new; 0 without a cache.
        mask: "" or "bool" or "additive", of shape `[1,1,Sq,Skv]`.
        rope: Gains and RoPE too.
        window: Swin V2: L2 norm, temperature for each head, bias `[1,H,Sq,Skv]`.
    """

    seqlen: int
    head_dim: int
    num_heads: int = 8
    num_kv_heads: int = 8
    batch_size: int = 1
    causal: bool = True
    dtype: torch.dtype = torch.float32
    cache_rows: int = 0
    mask: str = ""
    rope: bool = False
    window: bool = False

    @property
    def spec(self) -> AttentionSpec:
        causal = Causal.LOWER_RIGHT if self.causal else Causal.NONE
        return AttentionSpec(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            scale=1.0 if self.window else self.head_dim**-0.5,
            qk_norm=QkNorm.L2 if self.window else QkNorm.RMS,
            qk_norm_epsilon=1e-12 if self.window else EPSILON,
            rotary="after_norm" if self.rope else "none",
            causal=causal,
            kv_cache=KvCache.STATIC if self.cache_rows else KvCache.CONCAT,
            norm_axis=NormAxis.HEAD,
        )

    def inputs(self) -> dict[str, torch.Tensor]:
        """Tensors by the operator's names."""
        torch.manual_seed(0)
        size = (self.batch_size, self.seqlen)
        kv_width = self.num_kv_heads * self.head_dim
        drawn = {
            "query": torch.randn(*size, self.num_heads * self.head_dim).to(self.dtype),
            "key": torch.randn(*size, kv_width).to(self.dtype),
            "value": torch.randn(*size, kv_width).to(self.dtype),
        }
        if not self.window:
            drawn |= {f"{side}_norm_weight": torch.rand(self.head_dim) + 0.5 for side in "qk"}
        if self.rope:
            angles = torch.rand(1, self.seqlen, self.head_dim // 2) * 6
            drawn |= {"cos_cache": angles.cos(), "sin_cache": angles.sin()}
        if self.mask:
            mask = torch.randn(1, 1, self.seqlen, self.seqlen)
            drawn["attn_mask"] = mask > -1 if self.mask == "bool" else mask
        if self.window:
            drawn["attn_mask"] = torch.randn(1, self.num_heads, self.seqlen, self.seqlen)
            drawn["head_scale"] = torch.rand(self.num_heads) * 10 + 10
        if self.cache_rows:
            shape = (self.batch_size, self.num_kv_heads, self.cache_rows, self.head_dim)
            drawn |= {f"past_{n}": torch.randn(shape).to(self.dtype) for n in ("key", "value")}
            drawn["kv_lengths"] = torch.full((self.batch_size,), self.cache_rows)
        return {name: x.to(self.dtype) if "weight" in name else x for name, x in drawn.items()}

    @property
    def flops(self) -> float:
        """Multiply-adds counted twice; causal work counted half."""
        total = self.cache_rows or self.seqlen
        work = 4.0 * self.batch_size * self.num_heads * self.seqlen * total * self.head_dim
        return work / 2 if self.causal and not self.cache_rows else work

    @property
    def cache_bytes(self) -> int:
        width = self.batch_size * self.num_kv_heads * self.cache_rows * self.head_dim
        return 2 * width * self.dtype.itemsize


def _session(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, torch.Tensor],
    outputs: list[str],
    threads: int,
    *,
    dtype: torch.dtype,
    fused: bool = False,
) -> ort.InferenceSession:
    kinds = TYPES | {torch.bool: TensorProto.BOOL, torch.int64: TensorProto.INT64}
    kinds[torch.int32] = TensorProto.INT32
    infos = [
        helper.make_tensor_value_info(name, kinds[x.dtype], list(x.shape))
        for name, x in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, TYPES[dtype], None) for name in outputs]
    graph = helper.make_graph(nodes, "benchmark", infos, results)
    opsets = [
        helper.make_opsetid("", 24),
        helper.make_opsetid(OP_DOMAIN, 1),
        helper.make_opsetid("com.microsoft", 1),
    ]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    # Threads that spin after one contestant's turn would steal the next one's cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if fused:
        register_ort(options)
    return ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)


def _value(tensor: torch.Tensor) -> ort.OrtValue:
    if tensor.dtype is torch.bfloat16:
        bits = tensor.contiguous().view(torch.uint16).numpy()
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(tensor.contiguous().numpy())


def _bound(
    session: ort.InferenceSession, feeds: dict[str, torch.Tensor], in_place: dict[str, str]
) -> Run:
    """Runs with everything bound beforehand; in_place maps outputs to inputs that they share."""
    values = {name: _value(x) for name, x in feeds.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        if output.name in in_place:
            binding.bind_ortvalue_output(output.name, values[in_place[output.name]])
        else:
            binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding)


SHARED_CACHE: Final = {"present_key": "past_key", "present_value": "past_value"}


def ours(problem: Problem, threads: int) -> Run | None:
    """The fused operator in ONNX Runtime."""
    feeds = problem.inputs()
    outputs = ["output", *SHARED_CACHE] if problem.cache_rows else ["output"]
    roles = {"input_roles": ",".join(feeds), "output_roles": ",".join(outputs)}
    attributes: dict[str, Any] = dict(problem.spec.to_attributes(**roles))
    node = helper.make_node(OP_TYPE, list(feeds), outputs, domain=OP_DOMAIN, **attributes)
    session = _session([node], feeds, outputs, threads, dtype=problem.dtype, fused=True)
    return _bound(session, feeds, SHARED_CACHE)


def _constant(name: str, value: list[int]) -> onnx.NodeProto:
    tensor = helper.make_tensor(name, TensorProto.INT64, [len(value)], value)
    return helper.make_node("Constant", [], [name], value=tensor)


def _normalized(problem: Problem, side: str, name: str, op_type: str) -> list[onnx.NodeProto]:
    """Norm of each head of `[B,S,heads*D]`, and RoPE, as `<name>_normal`."""
    shaped = [
        _constant(f"{name}_heads", [0, 0, -1, problem.head_dim]),
        _constant(f"{name}_flat", [0, 0, -1]),
        helper.make_node("Reshape", [name, f"{name}_heads"], [f"{name}_4d"]),
    ]
    if problem.window:
        norm = helper.make_node("LpNormalization", [f"{name}_4d"], [f"{name}_unit"], axis=-1, p=2)
        if side == "q":
            shaped.append(_constant("temperature_shape", [1, 1, -1, 1]))
            reshape = ["head_scale", "temperature_shape"]
            shaped.append(helper.make_node("Reshape", reshape, ["temperature"]))
            scale = helper.make_node("Mul", [f"{name}_unit", "temperature"], [f"{name}_scaled"])
            shaped += [norm, scale]
        else:
            shaped += [norm, helper.make_node("Identity", [f"{name}_unit"], [f"{name}_scaled"])]
    else:
        shaped.append(
            helper.make_node(
                op_type,
                [f"{name}_4d", f"{side}_norm_weight"],
                [f"{name}_scaled"],
                epsilon=EPSILON,
                axis=-1,
            )
        )
    shaped.append(helper.make_node("Reshape", [f"{name}_scaled", f"{name}_flat"], [f"{name}_3d"]))
    if problem.rope:
        heads = problem.num_heads if side == "q" else problem.num_kv_heads
        rotary = helper.make_node(
            "RotaryEmbedding",
            [f"{name}_3d", "cos_cache", "sin_cache"],
            [f"{name}_normal"],
            num_heads=heads,
        )
        return [*shaped, rotary]
    return [*shaped, helper.make_node("Identity", [f"{name}_3d"], [f"{name}_normal"])]


def ort_native(problem: Problem, threads: int) -> Run | None:
    """(a) Stock ONNX Runtime: RMSNormalization and Attention."""
    if problem.dtype is not torch.float32 or problem.cache_rows:
        return None
    feeds = problem.inputs()
    mask = feeds.get("attn_mask")
    if mask is not None:
        shape = (problem.batch_size, problem.num_heads, problem.seqlen, problem.seqlen)
        feeds["attn_mask"] = mask.expand(shape)
    nodes = _normalized(problem, "q", "query", "RMSNormalization")
    nodes += _normalized(problem, "k", "key", "RMSNormalization")
    names = ["query_normal", "key_normal", "value", *(["attn_mask"] if mask is not None else [])]
    nodes.append(
        helper.make_node(
            "Attention",
            names,
            ["output"],
            q_num_heads=problem.num_heads,
            kv_num_heads=problem.num_kv_heads,
            scale=problem.spec.scale,
            is_causal=int(problem.causal),
        )
    )
    session = _session(nodes, feeds, ["output"], threads, dtype=problem.dtype)
    return _bound(session, feeds, {})


def ort_gqa(problem: Problem, threads: int) -> Run | None:
    """(b) Stock ONNX Runtime: SimplifiedLayerNormalization and GroupQueryAttention."""
    if problem.dtype is not torch.float32 or not problem.causal or problem.mask:
        return None
    feeds = problem.inputs()
    feeds.pop("kv_lengths", None)
    total = problem.cache_rows or problem.seqlen
    feeds["seqlens_k"] = torch.full((problem.batch_size,), total - 1, dtype=torch.int32)
    feeds["total_length"] = torch.tensor(total, dtype=torch.int32)
    if not problem.cache_rows:
        empty = torch.zeros(problem.batch_size, problem.num_kv_heads, 0, problem.head_dim)
        feeds |= {"past_key": empty, "past_value": empty}
    nodes = _normalized(problem, "q", "query", "SimplifiedLayerNormalization")
    nodes += _normalized(problem, "k", "key", "SimplifiedLayerNormalization")
    names = ["query_normal", "key_normal", "value", "past_key", "past_value", "seqlens_k"]
    nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [*names, "total_length"],
            ["output", "present_key", "present_value"],
            domain="com.microsoft",
            num_heads=problem.num_heads,
            kv_num_heads=problem.num_kv_heads,
            scale=problem.spec.scale,
        )
    )
    outputs = ["output", "present_key", "present_value"]
    session = _session(nodes, feeds, outputs, threads, dtype=problem.dtype)
    return _bound(session, feeds, SHARED_CACHE if problem.cache_rows else {})


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def pytorch(problem: Problem, threads: int) -> Run | None:
    """(c) PyTorch eager: rms_norm and scaled_dot_product_attention."""
    torch.set_num_threads(threads)
    feeds = problem.inputs()
    functional = torch.nn.functional
    mask = feeds.get("attn_mask")
    if mask is not None and mask.dtype is not torch.bool:
        mask = mask.to(problem.dtype)

    def heads(name: str) -> torch.Tensor:
        x = feeds[name]
        return x.reshape(*x.shape[:2], -1, problem.head_dim).transpose(1, 2)

    def normal(name: str, side: str) -> torch.Tensor:
        if problem.window:
            unit = functional.normalize(heads(name), dim=-1)
            scale = feeds["head_scale"].to(problem.dtype)[:, None, None]
            return unit * scale if side == "q" else unit
        weight = feeds[f"{side}_norm_weight"]
        x = functional.rms_norm(heads(name), (problem.head_dim,), weight, EPSILON)
        return _rotated(x, feeds["cos_cache"], feeds["sin_cache"]) if problem.rope else x

    def run() -> None:
        query, key, value = normal("query", "q"), normal("key", "k"), heads("value")
        causal = problem.causal
        if problem.cache_rows:
            start = problem.cache_rows - problem.seqlen
            feeds["past_key"][:, :, start:] = key
            feeds["past_value"][:, :, start:] = value
            key, value, causal = feeds["past_key"], feeds["past_value"], False
        shared = problem.num_heads != problem.num_kv_heads
        attended = functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, scale=problem.spec.scale, enable_gqa=shared
        )
        attended.transpose(1, 2).flatten(2)

    return torch.no_grad()(run)


CONTESTANTS: Final = {
    "ours": ours,
    "ORT native": ort_native,
    "ORT GQA": ort_gqa,
    "PyTorch": pytorch,
}
