"""The texts of a bundle: what to do with it, and the command that serves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qkexport.bundle.triton import ServedModel
from qkexport.engine.bindings import Flavour

_TEMPLATE: Final = Path(__file__).parent / "files" / "README.md.j2"


def readme_text(models: Sequence[ServedModel], plugin: str | None) -> str:
    """The README of a bundle.

    Args:
        models: What it serves.
        plugin: Place of the plugin library in the bundle; None where no engine needs it.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, autoescape=False
    )
    runtimes = {model.manifest.runtime for model in models}
    return environment.from_string(_TEMPLATE.read_text()).render(
        models=models,
        plugin=plugin,
        full=Flavour.TENSORRT in runtimes,
        rtx=Flavour.TENSORRT_RTX in runtimes,
        version=models[0].manifest.version,
    )


def serve_script(plugin: str | None) -> str:
    """The command that starts Triton on the bundle, wherever it lies."""
    option = (
        f' \\\n  --backend-config=tensorrt,plugins="$here/{plugin}"' if plugin is not None else ""
    )
    return (
        "#!/bin/sh\n"
        "# Starts Triton Inference Server on this bundle; further options are passed on.\n"
        'here=$(cd "$(dirname "$0")" && pwd)\n'
        f'exec tritonserver --model-repository="$here/triton"{option} "$@"\n'
    )
