"""Chooses what stands for a model in stock ONNX Runtime: the model itself, or its portable twin."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.errors import UnsupportedModelError
from qkexport.staging import staged_model
from qkexport.verify import Inputs, verify_conversion

if TYPE_CHECKING:
    import onnx_ir as ir

    from qkexport.load import Source
    from qkexport.verification import Verification

_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Target:
    """A converted model.

    Attributes:
        path: The model as a file.
        fused: The rewritten model it was made from, which every form can be made from.
        form: Its form.
        runtime: It was lowered for.
    """

    path: Path
    fused: ir.Model
    form: str
    runtime: str


def verify_form(
    source: Source, target: Target, *, inputs: Inputs | None = None, seed: int = 0
) -> Verification:
    """Checks a converted model, or its portable twin where stock ONNX Runtime cannot run it.

    Args:
        source: What the model was converted from.
        target: The model.
        inputs: For an ONNX source: sizes and values to check it at.
        seed: Of the random inputs.
    """
    from qkexport.export import to_form

    if target.form != "fused":
        try:
            return verify_conversion(source, target.path, inputs=inputs, seed=seed)
        except UnsupportedModelError as error:
            if (target.form, target.runtime) != ("native", "tensorrt"):
                raise
            _LOG.info("ONNX Runtime refuses this form: %s", error.message)
    twin = to_form(target.fused, "portable")
    beside = target.path.with_name(f"portable-{target.path.name}")
    with staged_model(twin, beside) as staged:
        verification = verify_conversion(source, staged.path, inputs=inputs, seed=seed)
    note = f"stock ONNX Runtime cannot run the {target.form} form; its portable twin was checked"
    return dataclasses.replace(verification, notes=(note, *verification.notes))
