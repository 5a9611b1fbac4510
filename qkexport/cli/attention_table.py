"""The table of attentions that `convert` and `inspect` print."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from qkexport.attention_record import AttentionRecord, AttentionStatus
from qkexport.spec import AttentionSpec

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: Final = {
    AttentionStatus.FUSED: "green",
    AttentionStatus.FUSABLE: "cyan",
    AttentionStatus.SKIPPED: "yellow",
    AttentionStatus.NO_QK_NORM: "dim",
}


def print_attentions(attentions: Sequence[AttentionRecord], console: Console) -> None:
    """Prints one row for each attention, equal neighbours joined."""
    from rich.table import Table

    if not attentions:
        console.print("no attention found")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("attention", "status", "spec or reason"):
        table.add_column(heading, overflow="fold")
    for record in attentions:
        detail = describe(record.spec) if record.spec is not None else record.reason or ""
        table.add_row(record.node, str(record.status), detail, style=_STYLES[record.status])
    console.print(table)


def describe(spec: AttentionSpec) -> str:
    """A spec in one line: heads, norm and scale always, the rest where it is not the default."""
    eps = f"{spec.qk_norm_epsilon:.3g}"
    parts = [
        f"{spec.num_heads}/{spec.num_kv_heads} heads",
        f"{spec.qk_norm} norm over {spec.norm_axis}, eps {eps}",
        f"scale {spec.scale:.6g}",
    ]
    told = {"num_heads", "num_kv_heads", "qk_norm", "norm_axis", "qk_norm_epsilon", "scale"}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name not in told and value != field.default:
            parts.append(f"{field.name} {_text(value)}")
    return ", ".join(parts)


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
