"""Fusing a model in a test, and running original and fused model side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from qkexport.export import to_form
from qkexport.match import MatchReport, find_attention
from qkexport.rewrite import fuse_attention
from qkexport.rotary_batch import complete_rotary_batches

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclasses.dataclass(frozen=True)
class FusedModel:
    """What matching said about a model, and the model rewritten accordingly."""

    report: MatchReport
    model: ir.Model


def fuse(model: ir.Model) -> FusedModel:
    """Matches and rewrites a copy of a model, with bodies that stock ONNX Runtime can run."""
    copy = ir.from_proto(ir.to_proto(model))
    report = find_attention(copy)
    fuse_attention(copy, report)
    complete_rotary_batches(copy)
    return FusedModel(report, to_form(copy, "portable"))


def run(model: ir.Model, inputs: Arrays) -> list[npt.NDArray[np.generic]]:
    """Runs a model in stock ONNX Runtime, or by ONNX's definition where it lacks a kernel."""
    proto = ir.to_proto(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except NotImplemented:
        inlined = onnx.inliner.inline_local_functions(proto)
        return list(ReferenceEvaluator(inlined).run(None, dict(inputs)))
    return list(session.run(None, dict(inputs)))
