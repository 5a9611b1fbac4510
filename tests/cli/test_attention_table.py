"""The table of attentions: every kind is told, equal layers once."""

from __future__ import annotations

import io

from rich.console import Console

from qkexport.attention_record import AttentionRecord, AttentionStatus
from qkexport.cli.attention_table import print_attentions
from qkexport.spec import AttentionSpec

_SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.25)


def _lines(*records: AttentionRecord) -> list[str]:
    text = io.StringIO()
    print_attentions(records, Console(file=text, width=160, markup=False))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _fused(name: str) -> AttentionRecord:
    return AttentionRecord(name, AttentionStatus.FUSED, spec=_SPEC)


def test_many_equal_layers_share_a_row() -> None:
    lines = _lines(*(_fused(f"layer_{i}") for i in range(36)))
    assert len(lines) == 2
    assert lines[1].startswith("layer_0 and 35 more  fused   4/2 heads, rms norm")


def test_few_are_told_one_by_one() -> None:
    assert [line.split()[0] for line in _lines(_fused("a"), _fused("b"))[1:]] == ["a", "b"]


def test_other_reasons_break_a_row() -> None:
    skipped = AttentionRecord("c", AttentionStatus.SKIPPED, reason="its mask has no rule")
    lines = _lines(_fused("a"), skipped, _fused("b"))
    assert [line.split()[0] for line in lines[1:]] == ["a", "c", "b"]
    assert "its mask has no rule" in lines[2]


def test_none_is_said() -> None:
    assert _lines() == ["no attention found"]
