"""Finds every attention of a graph and proves what each is, or says why it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from qkexport.errors import InvalidSpecError
from qkexport.match.assemble import NoNormError, assemble, trace_core
from qkexport.match.attention_op import attention_core
from qkexport.match.core import Core
from qkexport.match.facts import STANDARD_DOMAINS, Facts, is_op
from qkexport.match.norms import find_norm, resembles_norm
from qkexport.match.proof import NotProvenError, describe
from qkexport.match.report import Fused, Match, MatchReport, NearMiss
from qkexport.match.softmax import products_after, softmax_cores
from qkexport.spec import OP_DOMAIN, OP_TYPE, AttentionSpec

Attention = Match | NearMiss | Fused

_OTHER_ATTENTIONS: Final = frozenset(
    {"Attention", "GroupQueryAttention", "MultiHeadAttention", "PackedMultiHeadAttention"}
)

# A norm further from the scores than this, or behind a projection, is the block's own.
_MAX_SEARCH: Final = 64


def find_attention(model: ir.Model) -> MatchReport:
    """Finds every attention of a model's main graph. Changes nothing.

    Args:
        model: Any opset; in-place updates must be functionalized, as ONNX is by nature.

    Returns:
        Each attention in graph order: a `Match` with the node that would replace it, a `NearMiss`
        with the reason and the node that stands in the way, or a `Fused` that is there already.
    """
    facts = Facts(model.graph)
    found: list[Attention] = []
    for node in model.graph:
        try:
            found.extend(_attentions_at(facts, node))
        except RecursionError:
            reason = "the computation before it is too deep to follow"
            found.append(NearMiss(_name(node), node, reason, has_norm=True))
    return MatchReport(tuple(found))


def _attentions_at(facts: Facts, node: ir.Node) -> Iterator[Attention]:
    if is_op(node, "Softmax"):
        yield from _written_attention(facts, node)
    elif is_op(node, "Attention"):
        yield _attention_node(facts, node)
    elif node.domain == OP_DOMAIN and node.op_type == OP_TYPE:
        yield _fused_node(node)
    elif node.domain not in STANDARD_DOMAINS and node.op_type in _OTHER_ATTENTIONS:
        reason = f"{node.domain}.{node.op_type} has no rule"
        yield NearMiss(_name(node), node, reason, _norm_before(facts, list(node.inputs[:2])))


def _name(node: ir.Node) -> str:
    return node.name or node.outputs[0].name or node.op_type


def _fused_node(node: ir.Node) -> Fused | NearMiss:
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    try:
        return Fused(_name(node), node, AttentionSpec.from_attributes(attributes))
    except InvalidSpecError as error:
        return NearMiss(_name(node), node, error.message, has_norm=True)


def _attention_node(facts: Facts, node: ir.Node) -> Match | NearMiss:
    try:
        core = attention_core(facts, node)
    except NotProvenError as error:
        norm = _norm_before(facts, list(node.inputs[:2]))
        return NearMiss(_name(node), error.node or node, error.reason, norm)
    return _proven([core], facts, node)


def _written_attention(facts: Facts, softmax: ir.Node) -> Iterator[Match | NearMiss]:
    for last in products_after(softmax):
        try:
            cores = list(softmax_cores(facts, softmax, last))
        except NotProvenError as error:
            if _is_attention(softmax):
                norm = _norm_before(facts, list(softmax.inputs[:1]))
                yield NearMiss(_name(softmax), error.node or softmax, error.reason, norm)
            continue
        yield _proven(cores, facts, softmax)


def _proven(cores: list[Core], facts: Facts, node: ir.Node) -> Match | NearMiss:
    """The first reading with a proof, else the first reading's failure."""
    misses = []
    for core in cores:
        try:
            return assemble(facts, core, trace_core(facts, core))
        except NoNormError as error:
            misses.append(_without_norm(facts, core, error))
        except NotProvenError as error:
            misses.append(NearMiss(core.name, error.node or node, error.reason, has_norm=True))
    return max(misses, key=lambda miss: miss.has_norm)


def _without_norm(facts: Facts, core: Core, error: NoNormError) -> NearMiss:
    """A norm further back makes it a near miss: the first operator in between is the reason."""
    for operand, end in zip((core.query, core.key), error.ends, strict=True):
        if _norm_before(facts, [end]):
            node = end.producer() or core.node
            reason = f"between norm and scores stands {describe(node)}, which has no rule"
            return NearMiss(core.name, node, reason, has_norm=True)
        if _norm_before(facts, [operand.value]):
            reason = "it is normalized in a form that has no rule"
            return NearMiss(core.name, core.node, reason, has_norm=True)
        if error.on_key:
            return NearMiss(core.name, error.node or core.node, error.reason, has_norm=True)
    return NearMiss(core.name, core.node, error.reason, has_norm=False)


def _is_attention(softmax: ir.Node) -> bool:
    """Whether scores come from a product of two computed tensors, not from a projection."""
    return any(
        all(value is not None and value.const_value is None for value in node.inputs[:2])
        for node in _before(list(softmax.inputs[:1]), stop=("MatMul", "Einsum"))
        if is_op(node, "MatMul", "Einsum")
    )


def _norm_before(facts: Facts, values: list[ir.Value | None]) -> bool:
    """Whether a norm lies between these values and the projections they come from."""
    for node in _before(values, stop=_PROJECTIONS):
        if is_op(node, *_PROJECTIONS) and None not in node.inputs[:2]:
            is_product = all(v is not None and v.const_value is None for v in node.inputs[:2])
            if is_product and _norm_before(facts, list(node.inputs[:2])):
                return True  # the product of the scores themselves
            continue
        if resembles_norm(node) or find_norm(facts, node.outputs[0]) is not None:
            return True
    return False


_PROJECTIONS: Final = ("MatMul", "Gemm", "Conv", "Einsum", "Softmax", "Attention")


def _before(values: list[ir.Value | None], stop: tuple[str, ...]) -> Iterator[ir.Node]:
    pending = [value for value in values if value is not None]
    seen: set[ir.Node] = set()
    while pending and len(seen) < _MAX_SEARCH:
        node = pending.pop(0).producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if not is_op(node, *stop):
            pending.extend(value for value in node.inputs if value is not None)
