"""Where the fused node's result goes in the graph.

A rank-3 result [b, s, h*d] is what most models want next: they transpose [b, h, s, d] and merge
heads. Those operators are followed forwards and replaced together with the attention.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.arrange import restored
from qkexport.match.facts import Facts, View, is_op
from qkexport.match.layout import (
    BATCH,
    CHANNEL,
    HEAD,
    ROW,
    Layout,
    labels,
    regroup,
)
from qkexport.match.moves import resized
from qkexport.match.proof import NotProvenError
from qkexport.match.report import Replacement

_OUTPUT: Final = r.Produced("output")


def output_replacement(
    facts: Facts, output: View, rank: int, num_heads: int, head_dim: int
) -> Replacement:
    """The value that the fused node's output stands for.

    Raises:
        NotProvenError: The graph wants the result in a layout that cannot be made.
    """
    if rank == 3:
        merged = _merged_after(facts, output)
        if merged is not None:
            return Replacement(merged, _OUTPUT)
        split = r.reshape(_OUTPUT, [0, 0, num_heads, head_dim])
        recipe = restored(split, (BATCH, ROW, HEAD, CHANNEL), output.layout)
    else:
        recipe = restored(_OUTPUT, (BATCH, HEAD, ROW, CHANNEL), output.layout)
    if recipe is None and rank == 4:
        recipe = _with_merged_batch(output.layout, head_dim)
    if recipe is None:
        raise NotProvenError("the result has a layout that cannot be made", output.value.producer())
    return Replacement(output.value, recipe)


def _merged_after(facts: Facts, output: View) -> ir.Value | None:
    """The only use of a result, as [b, s, h*d], following transposes and reshapes."""
    view: View | None = output
    while view is not None:
        if view.rank == 3 and _is_merged(view.layout):
            return view.value
        view = _step_forward(facts, view)
    return None


def _is_merged(layout: Layout) -> bool:
    names = [labels(factors) for factors in layout]
    expected = ((BATCH,), (ROW,), (HEAD, CHANNEL))
    whole = list(names[2])
    return (
        set(names[0]) <= set(expected[0])
        and set(names[1]) <= set(expected[1])
        and whole in ([HEAD, CHANNEL], [CHANNEL], [HEAD])
        and len(names[0]) <= 1
        and len(names[1]) <= 1
    )


def _step_forward(facts: Facts, view: View) -> View | None:
    uses = tuple(view.value.uses())
    if len(uses) != 1 or view.value.is_graph_output():
        return None
    node = uses[0].node
    if not is_op(node, "Transpose", "Reshape", "Identity") or node.inputs[0] is not view.value:
        return None
    layout: Layout | None = view.layout
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        order = perm.as_ints() if perm else range(view.rank - 1, -1, -1)
        layout = tuple(view.layout[i] for i in order)
    elif node.op_type == "Reshape":
        before, after = facts.sizes(view.value), facts.sizes(node.outputs[0])
        if before is None or after is None:
            return None
        layout = regroup(resized(view.layout, before), after)
    return None if layout is None else View(node.outputs[0], layout)


def _with_merged_batch(layout: Layout, head_dim: int) -> r.Recipe | None:
    """[b, h, s, d] as [b*h, s, d]."""
    names = [labels(factors) for factors in layout]
    if names != [(BATCH, HEAD), (ROW,), (CHANNEL,)]:
        return None
    rows = r.shape_of(_OUTPUT, 2, 3)
    shape = r.concat([r.integers([-1]), rows, r.integers([head_dim])], 0)
    return r.Apply("Reshape", (_OUTPUT, shape))
