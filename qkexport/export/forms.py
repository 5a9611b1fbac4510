"""The three forms of one model: portable, fused and native."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from qkexport.body import Runtime
from qkexport.body.tape import data_type
from qkexport.errors import UsageError
from qkexport.export.node import (
    attention_nodes,
    is_attention,
    node_signature,
    spell_by_position,
    spell_packed,
)
from qkexport.onnx_function import lower
from qkexport.signature import AttentionSignature, Dim
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, KvCache

_OVERLOADS_IR_VERSION = 10
_DEFAULT_OPSET = 24
_DIGEST_LENGTH = 12  # 48 bits: among 1000 bodies two share a name with a chance of 2e-9


class Form(enum.StrEnum):
    """How attentions stand in a model.

    PORTABLE: the operator with function bodies; runs everywhere, fused where the library is loaded.
    FUSED: the operator alone; needs the library or plugin.
    NATIVE: standard operators only, as one runtime wants them.
    """

    PORTABLE = "portable"
    FUSED = "fused"
    NATIVE = "native"


def to_form(model: ir.Model, form: Form | str, *, runtime: Runtime | str = Runtime.ORT) -> ir.Model:
    """Converts a model that holds QKNormAttention nodes to a form.

    Args:
        model: In the portable or fused form; stays as it is. A model without such nodes comes back
            unchanged, which includes native ones: their attentions can no longer be told.
        form: The form to make.
        runtime: Who will read the result. `tensorrt` makes fused nodes name their inputs, as the
            plugin needs it, and lowers native ones for TensorRT. Portable bodies are always for
            ONNX Runtime.

    Returns:
        A new model that shares the weights of `model`.

    Raises:
        UsageError: The form or runtime is unknown, or portable is asked for TensorRT, whose parser
            would expand the functions instead of calling the plugin.
        InvalidSpecError: A node breaks the operator's contract.
        UnsupportedModelError: A node cannot be lowered at the model's opset.
    """
    form, runtime = _checked(form, runtime)
    model = model.clone()
    _drop_functions(model)
    scopes = list(_scopes(model))
    for scope, opset in scopes:
        for node in list(attention_nodes(scope)):
            signature = node_signature(node)
            spell_by_position(node)
            _describe_outputs(node, signature)
            node.overload = ""
            if form is not Form.FUSED:
                _give_function(model, node, lower(signature, runtime, opset))
            elif runtime is Runtime.TENSORRT:
                spell_packed(node)
    if form is Form.NATIVE:
        InlinePass(criteria=_is_attention_function)(model)
    _import_domain(model)
    return model


def _checked(form: Form | str, runtime: Runtime | str) -> tuple[Form, Runtime]:
    if str(form) not in list(Form):
        names = ", ".join(map(repr, map(str, Form)))
        raise UsageError(
            f"Form of a model is not known, got {str(form)!r}.", note=f"accepted: {names}."
        )
    form, runtime = Form(str(form)), Runtime.of(runtime)
    if form is Form.PORTABLE and runtime is Runtime.TENSORRT:
        message = "Form of a model for TensorRT must be fused or native, got 'portable'."
        note = "TensorRT's parser expands local functions instead of calling a plugin."
        raise UsageError(message, note=note)
    return form, runtime


def _is_attention_function(function: ir.Function) -> bool:
    return function.domain == OP_DOMAIN and function.name == OP_TYPE


def _drop_functions(model: ir.Model) -> None:
    for key, function in list(model.functions.items()):
        if _is_attention_function(function):
            del model.functions[key]


def _scopes(model: ir.Model) -> Iterator[tuple[ir.Graph | ir.Function, int]]:
    """Everything that can hold nodes, with its version of the standard operators."""
    opset = model.opset_imports.setdefault("", _DEFAULT_OPSET)
    yield model.graph, opset
    for function in list(model.functions.values()):
        yield function, function.opset_imports.get("", opset)


def _give_function(model: ir.Model, node: ir.Node, function: ir.Function) -> None:
    """Points a node to its function, which is added unless one of the same body is there.

    Overloads are named after the body, so equal structures share one, and functions of several
    models can be put into one.
    """
    body = ir.to_proto(function).SerializeToString(deterministic=True)
    digest = hashlib.sha256(body).hexdigest()[:_DIGEST_LENGTH]
    function.overload = node.overload = f"{node.attributes.get_string('qk_norm')}_{digest}"
    model.functions.setdefault(function.identifier(), function)
    model.ir_version = max(model.ir_version, _OVERLOADS_IR_VERSION)


def _describe_outputs(node: ir.Node, signature: AttentionSignature) -> None:
    """Sets types and shapes that are missing: no shape inference looks past the node."""
    dims, spec = signature.dims, signature.spec
    query, key = node.inputs[0], node.inputs[1]
    assert query is not None  # the signature was read from it
    assert query.shape is not None
    shapes: list[list[Dim | ir.SymbolicDim]] = [list(query.shape)]
    row = 1 if signature.rank == 3 else 2
    width = dims.head_dim_v
    shapes[0][-1] = spec.num_heads * width if signature.rank == 3 and width else width
    batch = query.shape[0]
    total: Dim | ir.SymbolicDim = dims.seqlen_total
    if total is None and spec.kv_cache is KvCache.CONCAT and not signature.has("past_key"):
        total = key.shape[row] if key is not None and key.shape is not None else None
    for head_dim in (dims.head_dim, dims.head_dim_v):
        shapes.append([batch, spec.num_kv_heads, total, head_dim])
    for value, shape in zip(node.outputs, shapes, strict=False):
        if value.type is None:
            value.type = ir.TensorType(data_type(signature.dtype))
        if value.shape is None:
            value.shape = ir.Shape(shape)


def _import_domain(model: ir.Model) -> None:
    """Keeps the operator's domain imported exactly where a node of it is left."""
    scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for scope in scopes:
        if any(map(is_attention, ir.traversal.RecursiveGraphIterator(scope))):
            scope.opset_imports[OP_DOMAIN] = OP_VERSION
        else:
            scope.opset_imports.pop(OP_DOMAIN, None)
