"""Chooses what stands for a model in stock ONNX Runtime: the model itself, or its portable twin."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.errors import UnsupportedModelError
from qkexport.staging import staged_model
from qkexport.verify import verify_conversion

if TYPE_CHECKING:
    import onnx_ir as ir

    from qkexport.trace import Trace
    from qkexport.verification import Verification

_LOG: Final = logging.getLogger(__name__)


def verify_form(
    trace: Trace, fused: ir.Model, path: Path, form: str, runtime: str, *, seed: int
) -> Verification:
    """Checks a converted model, or its portable twin where stock ONNX Runtime cannot run it.

    Args:
        trace: The source.
        fused: The rewritten model, from which any form can be made.
        path: The converted model as a file.
        form: Of the converted model.
        runtime: The converted model was lowered for.
        seed: Of the random inputs.
    """
    from qkexport.export import to_form

    if form != "fused":
        try:
            return verify_conversion(trace, path, seed=seed)
        except UnsupportedModelError as error:
            if (form, runtime) != ("native", "tensorrt"):
                raise
            _LOG.info("ONNX Runtime refuses this form: %s", error.message)
    twin = to_form(fused, "portable")
    with staged_model(twin, path.with_name(f"portable-{path.name}")) as staged:
        verification = verify_conversion(trace, staged.path, seed=seed)
    note = f"stock ONNX Runtime cannot run the {form} form; its portable twin was checked"
    return dataclasses.replace(verification, notes=(note, *verification.notes))
