"""The operator in PyTorch: `torch.ops.qkexport.qk_norm_attention`, with and without a cache.

Importing this module registers two custom ops. Both take the tensors positionally, in the order of
the ONNX node, and every attribute by its name:

    output = torch.ops.qkexport.qk_norm_attention(
        query, key, value, q_norm_weight, k_norm_weight, num_heads=16, num_kv_heads=8, scale=0.125)
    output, present_key, present_value = torch.ops.qkexport.qk_norm_attention_with_cache(...)

They run the native kernel of the tensors' device, CPU or CUDA, where it is built, else the
reference; they compile and export as one node, and have gradients on every device.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from qkexport.reference import reference_attention, signature_of
from qkexport.signature import INPUT_NAMES, OUTPUT_NAMES, REQUIRED_INPUTS
from qkexport.spec import AttentionSpec, KvCache

Tensors = dict[str, torch.Tensor]
Arguments = tuple[torch.Tensor | None, ...]

_SCHEMA_TYPES: Final = {"int": "int", "float": "float", "bool": "bool"}


def _attribute_schema(field: dataclasses.Field[Any]) -> str:
    kind = _SCHEMA_TYPES.get(str(field.type), "str")
    if field.default is dataclasses.MISSING:
        return f"{kind} {field.name}"
    default = field.default
    text = f'"{default}"' if isinstance(default, enum.Enum) else str(default)
    return f"{kind} {field.name}={text}"


_TENSORS: Final = ", ".join(
    f"Tensor {name}" if name in REQUIRED_INPUTS else f"Tensor? {name}=None" for name in INPUT_NAMES
)
_ATTRIBUTES: Final = ", ".join(map(_attribute_schema, dataclasses.fields(AttentionSpec)))
_GRADIENTS: Final = ", ".join(f"Tensor? grad_{name}" for name in OUTPUT_NAMES)


def _present(arguments: Arguments) -> Tensors:
    return {
        name: tensor
        for name, tensor in zip(INPUT_NAMES, arguments, strict=False)
        if tensor is not None
    }


def _run(spec: AttentionSpec, inputs: Tensors, outputs: tuple[str, ...]) -> list[torch.Tensor]:
    from qkexport.torch_native import run_native

    results = run_native(spec, inputs, outputs=outputs)
    if results is None:
        results = reference_attention(spec, inputs, compute_dtype=torch.float32, outputs=outputs)
        # An op may not return what it was given, and the reference does where nothing is done.
        results = {name: _owned(x) for name, x in results.items()}
    return [results[name] for name in outputs]


def _owned(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone(memory_format=torch.contiguous_format)


def _run_fake(spec: AttentionSpec, inputs: Tensors, outputs: tuple[str, ...]) -> list[torch.Tensor]:
    """Outputs without contents; sizes may be symbols."""
    signature_of(spec, inputs, outputs)
    shapes = _shapes(spec, inputs)
    return [inputs["query"].new_empty(shapes[name]) for name in outputs]


def _shapes(spec: AttentionSpec, inputs: Tensors) -> dict[str, tuple[int, ...]]:
    query, key, value = (inputs[name].shape for name in REQUIRED_INPUTS)
    packed = len(query) == 3
    row = 1 if packed else 2
    head_dim, head_dim_v = (
        shape[-1] // spec.num_kv_heads if packed else shape[-1] for shape in (key, value)
    )
    total = inputs["past_key"].shape[2] if "past_key" in inputs else 0
    if spec.kv_cache is KvCache.CONCAT:
        total += key[row]
    present = query[0], spec.num_kv_heads, total
    output: tuple[int, ...] = (query[0], spec.num_heads, query[2], head_dim_v)
    if packed:
        output = (query[0], query[1], spec.num_heads * head_dim_v)
    return {
        "output": output,
        "present_key": (*present, head_dim),
        "present_value": (*present, head_dim_v),
    }


def _gradients(
    grads: Sequence[torch.Tensor | None], spec: AttentionSpec, inputs: Tensors, wanted: set[str]
) -> list[torch.Tensor]:
    """Gradients of the wanted inputs, by differentiating the reference."""
    given = {name: grad for name, grad in zip(OUTPUT_NAMES, grads, strict=True) if grad is not None}

    def attend(sources: Tensors) -> Tensors:
        results = reference_attention(
            spec, {**inputs, **sources}, compute_dtype=torch.float32, outputs=OUTPUT_NAMES
        )
        return {name: results[name] for name in given}

    # torch.func differentiates also where a compiler has switched autograd off around the op.
    sources = {name: x.detach() for name, x in inputs.items() if name in wanted}
    pull_back = torch.func.vjp(attend, sources)[1]
    found = pull_back(given)[0]
    return [_owned(found[name]) for name in sources]


def _register(name: str, outputs: tuple[str, ...]) -> Any:
    """Registers one op with its implementation, its fake and its gradient."""
    returned = "Tensor" if len(outputs) == 1 else f"({', '.join(['Tensor'] * len(outputs))})"
    schema = f"({_TENSORS}, *, {_ATTRIBUTES}) -> {returned}"

    def with_runner(run: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
        def implementation(*arguments: torch.Tensor | None, **attributes: Any) -> Any:
            results = run(AttentionSpec(**attributes), _present(arguments), outputs)
            return results[0] if len(results) == 1 else tuple(results)

        return implementation

    op = torch.library.custom_op(name, with_runner(_run), mutates_args=(), schema=schema)
    op.register_fake(with_runner(_run_fake))
    op.register_autograd(_backward, setup_context=_save)
    return op


def _save(ctx: Any, inputs: Arguments, keyword_only_inputs: dict[str, Any], output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.attributes = keyword_only_inputs


def _backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad)
    padded = [*grads, *[None] * (len(OUTPUT_NAMES) - len(grads))]
    found = iter(
        torch.ops.qkexport.qk_norm_attention_backward(
            *padded, *ctx.saved_tensors, wanted=wanted, **ctx.attributes
        )
    )
    return tuple(next(found) if want else None for want in wanted)


# The gradient is an op of its own, so that a compiler meets one node and not the reference.


def _register_backward() -> Any:
    schema = f"({_GRADIENTS}, {_TENSORS}, *, bool[] wanted, {_ATTRIBUTES}) -> Tensor[]"

    def implementation(
        *arguments: torch.Tensor | None, wanted: list[bool], **attributes: Any
    ) -> list[torch.Tensor]:
        grads, inputs = arguments[: len(OUTPUT_NAMES)], _present(arguments[len(OUTPUT_NAMES) :])
        # Trailing inputs that are left at their defaults do not arrive.
        names = {name for name, want in zip(INPUT_NAMES, wanted, strict=False) if want}
        return _gradients(grads, AttentionSpec(**attributes), inputs, names)

    def fake(
        *arguments: torch.Tensor | None, wanted: list[bool], **attributes: Any
    ) -> list[torch.Tensor]:
        inputs = arguments[len(OUTPUT_NAMES) :]
        return [
            x.new_empty(x.shape)
            for x, want in zip(inputs, wanted, strict=False)
            if want and x is not None
        ]

    op = torch.library.custom_op(
        "qkexport::qk_norm_attention_backward", implementation, mutates_args=(), schema=schema
    )
    op.register_fake(fake)
    return op


qk_norm_attention: Final = _register("qkexport::qk_norm_attention", OUTPUT_NAMES[:1])
qk_norm_attention_with_cache: Final = _register(
    "qkexport::qk_norm_attention_with_cache", OUTPUT_NAMES
)
_register_backward()


def op_attributes(spec: AttentionSpec) -> dict[str, int | float | bool | str]:
    """The keyword arguments of both ops that say what a spec says."""
    attributes = dataclasses.asdict(spec)
    return {
        name: str(value) if isinstance(value, enum.Enum) else value
        for name, value in attributes.items()
    }


def onnx_translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """What `torch.onnx.export(..., custom_translation_table=...)` takes to write the ONNX node.

    Returns:
        Both ops, each with a function that makes one `qkexport::QKNormAttention` node with every
        attribute written out, and `tensor_scatter` with one that makes a TensorScatter.
    """
    from qkexport.kv_cache import scatter_op
    from qkexport.torch_onnx import translate, translate_with_cache

    return {
        torch.ops.qkexport.tensor_scatter.default: scatter_op.translate,
        torch.ops.qkexport.qk_norm_attention.default: translate,
        torch.ops.qkexport.qk_norm_attention_with_cache.default: translate_with_cache,
    }
