"""The table of attentions that `convert` and `inspect` print."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from qkexport.attention_record import AttentionRecord, AttentionStatus
from qkexport.spec import AttentionSpec

if TYPE_CHECKING:
    from rich.console import Console

_JOINED: Final = 3  # equal layers of a model; fewer are told one by one
_STYLES: Final = {
    AttentionStatus.FUSED: "green",
    AttentionStatus.FUSABLE: "cyan",
    AttentionStatus.SKIPPED: "yellow",
    AttentionStatus.NO_QK_NORM: "dim",
}


def print_attentions(attentions: Sequence[AttentionRecord], console: Console) -> None:
    """Prints one row for each attention; many equal neighbours share one."""
    from rich.table import Table

    if not attentions:
        console.print("no attention found")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("attention", "status", "spec or reason"):
        table.add_column(heading, overflow="fold")
    for (status, detail), equal in itertools.groupby(attentions, _told):
        records = list(equal)
        joined = len(records) >= _JOINED
        names = [record.node for record in records]
        for name in [f"{names[0]} and {len(names) - 1} more"] if joined else names:
            table.add_row(name, str(status), detail, style=_STYLES[status])
    console.print(table)


def _told(record: AttentionRecord) -> tuple[AttentionStatus, str]:
    detail = describe(record.spec) if record.spec is not None else record.reason or ""
    return record.status, detail


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
