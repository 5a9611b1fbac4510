"""The values of an attention: copies of heads and earlier rows, never arithmetic."""

from __future__ import annotations

import dataclasses

from qkexport.match.core import Core
from qkexport.match.facts import Facts, View
from qkexport.match.moves import step_back
from qkexport.match.operand import Past, coarser_heads, copied_heads, row_parts
from qkexport.match.proof import NotProvenError
from qkexport.match.static_cache import static_parts


@dataclasses.dataclass(frozen=True)
class ValueSide:
    """Values to pass.

    Attributes:
        raw: Views of the new rows, any of which will do.
        copies: How often each head is repeated before the product.
        past: Earlier rows, or None.
    """

    raw: tuple[View, ...]
    copies: int = 1
    past: Past | None = None


def value_side(facts: Facts, core: Core, *, has_past: bool) -> ValueSide:
    """Walks back from the values.

    Args:
        facts: The graph.
        core: The attention.
        has_past: The keys have earlier rows, so the values must have them too.

    Raises:
        NotProvenError: The earlier rows are not found.
    """
    copies = 1
    view = View(core.value.value, coarser_heads(core.value.layout, core.value_copies))
    raw = [view]
    past = None if core.past_value is None else Past(core.past_value, core.past_value, view)
    while True:
        move = step_back(facts, view)
        times = copied_heads(move.copied) if move is not None and move.copied else 1
        if times != 1 and core.past_value is not None:
            break  # earlier values have as many heads as these
        if move is not None and times is not None:
            view = View(move.view.value, coarser_heads(move.view.layout, times))
            raw = [view] if move.copied else [*raw, view]
            copies *= times
            continue
        found = _past(facts, view) if has_past and past is None else None
        if found is None:
            break
        past = found
        view = past.new
        raw = [view]
    if has_past and past is None:
        raise NotProvenError("the keys have a cache but the values have none", core.node)
    return ValueSide(tuple(raw), copies, past)


def _past(facts: Facts, view: View) -> Past | None:
    written = static_parts(facts, view)
    if written is not None:
        buffer, new, first_row = written
        return Past(buffer, view, new, first_row)
    parts = row_parts(facts, view)
    return None if parts is None or len(parts) != 2 else Past(parts[0], view, parts[1])
