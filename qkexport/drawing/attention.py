"""The attentions of a model before and after fusion, equal ones once."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import onnx_ir as ir

from qkexport.drawing.diagram import Diagram, computes_sizes, diagram_of
from qkexport.match import Fused, Match, find_attention
from qkexport.rewrite import fuse_attention
from qkexport.spec import OP_DOMAIN, OP_TYPE

_MOST_DRAWN: Final = 8  # kinds of attention; a file has one or two


@dataclasses.dataclass(frozen=True)
class AttentionDrawing:
    """One kind of attention.

    Attributes:
        name: The first attention of this kind.
        copies: How many attentions of the model are of it.
        before: As standard operators; None where a fused file carries no body.
        after: As the fused operator.
    """

    name: str
    copies: int
    before: Diagram | None
    after: Diagram


def draw_attentions(model: ir.Model) -> tuple[AttentionDrawing, ...]:
    """Draws every kind of QK-norm attention that is fused or can be.

    Args:
        model: With types and shapes; its matches are fused by this, in place.
    """
    report = find_attention(model)
    places = {node: place for place, node in enumerate(model.graph)}
    kinds: dict[Hashable, list[Match | Fused]] = {}
    before: dict[str, list[ir.Node]] = {}
    for item in report.attentions:
        if isinstance(item, Match):
            before[item.name] = sorted(item.nodes, key=places.__getitem__)
            operators = tuple(n.op_type for n in before[item.name] if not computes_sizes(n))
            kinds.setdefault((item.spec, repr(item.signature), operators), []).append(item)
        elif isinstance(item, Fused):
            kinds.setdefault((item.spec, item.node.overload), []).append(item)
    chosen = list(kinds.values())[:_MOST_DRAWN]
    old = {
        items[0].name: diagram_of("before: standard operators", before[items[0].name])
        for items in chosen
        if isinstance(items[0], Match)
    }
    fuse_attention(model, report)
    fused = {node for node in model.graph if _is_fused(node)}
    made = {node for node in model.graph if node not in places}
    drawings = []
    for items in chosen:
        first = items[0]
        if isinstance(first, Match):
            node = next(n for n in made if (n.name or "").startswith(f"{first.name}_fused"))
            after = [n for n in model.graph if n in _made_for(node, made)]
            past: Diagram | None = old[first.name]
        else:
            node, after = first.node, [first.node]
            past = _body(model, node)
        picture = diagram_of("after: one fused operator", after, fused=fused, fellows=made)
        drawings.append(AttentionDrawing(first.name, len(items), past, picture))
    return tuple(drawings)


def _is_fused(node: ir.Node) -> bool:
    return (node.domain, node.op_type) == (OP_DOMAIN, OP_TYPE)


def _made_for(node: ir.Node, made: set[ir.Node]) -> set[ir.Node]:
    """The node and what was made together with it: what only adapts its inputs and outputs."""
    found, waiting = {node}, [node]
    while waiting:
        for neighbour in _neighbours(waiting.pop()):
            if neighbour in made and neighbour not in found and not _is_fused(neighbour):
                found.add(neighbour)
                waiting.append(neighbour)
    return found


def _neighbours(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer
    for output in node.outputs:
        yield from (use.node for use in output.uses())


def _body(model: ir.Model, node: ir.Node) -> Diagram | None:
    function = model.functions.get((node.domain, node.op_type, node.overload))
    if function is None:
        return None
    nodes: Sequence[ir.Node] = list(function)
    return diagram_of("its body: standard operators", nodes)
