"""Mutants of what happens to scores and output."""

from __future__ import annotations

import math

import onnx_ir as ir

from qkexport.proof.mutants.mutant import mutant
from qkexport.proof.mutants.site import Site


@mutant("scale-default")
def scale_default(site: Site) -> bool:
    """The scale is 1/sqrt(D), or 1 where it was."""
    head_dim = site.signature.dims.head_dim
    if head_dim is None:
        return False
    default = head_dim**-0.5
    usual = math.isclose(site.spec.scale, default, rel_tol=1e-3)
    site.set_spec(scale=1.0 if usual else default)
    return not usual or head_dim != 1


@mutant("softcap")
def softcap(site: Site) -> bool:
    """The softcap is lost, or one is added where there was none."""
    site.set_spec(softcap=0.0 if site.spec.softcap else 1.0)
    return True


@mutant("drop-temperature")
def drop_temperature(site: Site) -> bool:
    """The learned temperature is lost."""
    if site.input("head_scale") is None:
        return False
    site.set_input("head_scale", None)
    return True


@mutant("output-bfloat16", rounding=True)
def output_bfloat16(site: Site) -> bool:
    """The output is rounded to bfloat16 on its way.

    In a float16 model that is hardly more than the type itself rounds.
    """
    if site.dtype is not ir.DataType.FLOAT:
        return False
    site.after("Cast", to=int(site.dtype))
    site.after("Cast", to=int(ir.DataType.BFLOAT16))
    return True
