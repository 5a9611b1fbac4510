"""RotaryEmbedding of opset 23 on [b, h, s, d] or [b, s, h*d].

RotaryEmbedding(x, cos [b, s, r/2], sin)
RotaryEmbedding(x, cos [rows, r/2], sin, position_ids [b, s])
"""

from __future__ import annotations

from qkexport.match import recipe as r
from qkexport.match.factors import whole
from qkexport.match.facts import Facts, View, data_input, integer, producer
from qkexport.match.layout import BATCH, CHANNEL, HEAD, ROW, Factor, extent, labels
from qkexport.match.rotary.rotation import Rotation
from qkexport.match.sizes import ONE


def fused_rotation(facts: Facts, view: View) -> Rotation | None:
    """Matches the operator on whole heads."""
    node = producer(view.value, "RotaryEmbedding")
    if node is None or None in node.inputs[:3] or not _is_token_layout(view):
        return None
    source, cos, sin = (value for value in node.inputs[:3] if value is not None)
    positions = data_input(node, 3)
    width = facts.sizes(cos)
    channels = extent(view.layout, CHANNEL).known
    if width is None or channels is None or len(width) != (2 if positions else 3):
        return None
    rotary_dim = integer(node, "rotary_embedding_dim", 0) or channels
    if width[-1].known != rotary_dim // 2:
        return None
    return Rotation(
        View(source, view.layout),
        r.Source(cos),
        r.Source(sin),
        rotary_dim,
        bool(integer(node, "interleaved", 0)),
        None if positions is None else r.Source(positions),
    )


def _is_token_layout(view: View) -> bool:
    heads, channels = extent(view.layout, HEAD), extent(view.layout, CHANNEL)
    if view.rank == 4:
        names = (BATCH, HEAD, ROW)
        return whole(view.layout[3], CHANNEL, channels) and all(
            set(labels(factors)) <= {name}
            for factors, name in zip(view.layout, names, strict=False)
        )
    merged = tuple(
        Factor(label, size) for label, size in ((HEAD, heads), (CHANNEL, channels)) if size != ONE
    )
    return view.rank == 3 and view.layout[2] == merged
