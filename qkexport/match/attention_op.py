"""Attention of opset 23 and later, as one node.

    Attention(q [b,h,s,d], k [b,kv,t,d], v, mask, past_k, past_v, lengths)
        -> y, present_k, present_v
    Attention(q [b,s,h*d], ...; q_num_heads, kv_num_heads)

Causal alignment is upper left with offset P; with lengths and no past it is lower right.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.core import Core, Mask
from qkexport.match.facts import Facts, View, data_input, integer, number
from qkexport.match.layout import BATCH, CHANNEL, COLUMN, HEAD, ROW, Layout, axis, joined
from qkexport.match.proof import NotProvenError
from qkexport.match.sizes import Size
from qkexport.spec import Causal


def attention_core(facts: Facts, node: ir.Node) -> Core:
    """Reads the node.

    Raises:
        NotProvenError: It uses something the fused operator has no word for.
    """
    _refuse_unknown(node)
    heads = integer(node, "q_num_heads", 0), integer(node, "kv_num_heads", 0)
    query = _operand(facts, node, 0, heads[0])
    key, value = (_operand(facts, node, i, heads[1]) for i in (1, 2))
    channels = channel_size(query)
    lengths = data_input(node, 6)
    past_key, past_value = (_past(facts, node, i) for i in (4, 5))
    causal = Causal.NONE
    if integer(node, "is_causal", 0):
        causal = Causal.LOWER_RIGHT if lengths is not None else Causal.UPPER_LEFT
    return Core(
        node=node,
        name=node.name or node.outputs[0].name or "Attention",
        output=View(node.outputs[0], _output_layout(query, value)),
        query=query,
        key=key,
        value=value,
        scale=number(node, "scale", 1 / math.sqrt(channels)),
        masks=_masks(facts, node, query),
        softcap=number(node, "softcap", 0.0),
        causal=causal,
        kv_lengths=None if lengths is None else r.Source(lengths),
        past_key=past_key,
        past_value=past_value,
        presents=_presents(node),
    )


def _refuse_unknown(node: ir.Node) -> None:
    known = {
        "is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap",
        "softmax_precision",
    }  # fmt: skip
    for name in node.attributes:
        if name not in known:
            raise NotProvenError(f"Attention has the attribute {name}, which has no rule", node)
    if len(node.outputs) > 3 and (node.outputs[3].uses() or node.outputs[3].is_graph_output()):
        raise NotProvenError("the scores themselves are an output", node)


def _operand(facts: Facts, node: ir.Node, index: int, heads: int) -> View:
    value = node.inputs[index]
    sizes = None if value is None else facts.sizes(value)
    if value is None or sizes is None or len(sizes) not in (3, 4):
        raise NotProvenError("the rank of query, key or value is not known", node)
    if len(sizes) == 4:
        named = zip((BATCH, HEAD, ROW, CHANNEL), sizes, strict=True)
        view = View(value, tuple(axis(label, size) for label, size in named))
        if sizes[1].known is None:
            raise NotProvenError("the number of heads is not known", node)
    else:
        width = sizes[2].divided_by(Size(heads)) if heads else None
        if width is None:
            raise NotProvenError("the number of heads is not known", node)
        merged = joined((*axis(HEAD, Size(heads)), *axis(CHANNEL, width)))
        view = View(value, (axis(BATCH, sizes[0]), axis(ROW, sizes[1]), merged))
    return view


def channel_size(view: View) -> int:
    """Number of channels D of an operand."""
    sizes = [f.size for factors in view.layout for f in factors if f.label == CHANNEL]
    known = [size.known for size in sizes]
    if not known or None in known:
        raise NotProvenError("head_dim is not known", view.value.producer())
    return math.prod(size for size in known if size is not None)


def _output_layout(query: View, value: View) -> Layout:
    """The query's layout with the value's channels."""
    channels = next((f for factors in value.layout for f in factors if f.label == CHANNEL), None)
    return tuple(
        tuple(
            channels if factor.label == CHANNEL and channels is not None else factor
            for factor in factors
        )
        for factors in query.layout
    )


def _masks(facts: Facts, node: ir.Node, query: View) -> tuple[Mask, ...]:
    value = data_input(node, 3)
    if value is None:
        return ()
    sizes = facts.sizes(value)
    if sizes is None or len(sizes) > 4:
        raise NotProvenError("the rank of the mask is not known", node)
    names = (BATCH, HEAD, ROW, COLUMN)[4 - len(sizes) :]
    layout = tuple(axis(label, size) for label, size in zip(names, sizes, strict=True))
    _refuse_short_mask(facts, node, sizes[-1])
    keeps = True if facts.dtype(value) == ir.DataType.BOOL else None
    return (Mask(View(value, layout), keeps),)


def _refuse_short_mask(facts: Facts, node: ir.Node, columns: Size) -> None:
    """A mask may end before the keys do and then hides the rest; nothing here says that."""
    key, past = facts.sizes(node.inputs[1]) if node.inputs[1] else None, data_input(node, 4)
    rows = None if key is None else key[-2]
    if past is not None or rows is None or columns == rows:
        return
    if columns.known is not None and rows.known is not None:
        raise NotProvenError("the mask is shorter than the keys", node)


def _past(facts: Facts, node: ir.Node, index: int) -> View | None:
    value = data_input(node, index)
    sizes = None if value is None else facts.sizes(value)
    if value is None:
        return None
    if sizes is None or len(sizes) != 4:
        raise NotProvenError("the rank of the past is not known", node)
    named = zip((BATCH, HEAD, ROW, CHANNEL), sizes, strict=True)
    return View(value, tuple(axis(label, size) for label, size in named))


def _presents(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    outputs = [value for value in node.outputs[1:3] if value.name]
    return (outputs[0], outputs[1]) if len(outputs) == 2 else None
