"""The machine-readable report; its schema is parity.schema.json beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from qkexport.proof.results import ParityResult

SCHEMA_PATH: Final = Path(__file__).with_name("parity.schema.json")


def json_report(result: ParityResult) -> str:
    """The document as text."""
    return json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"


def parity_schema() -> dict[str, Any]:
    """The published JSON schema of the document."""
    schema: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    return schema
