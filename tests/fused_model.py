"""Fusing a model in a test, and running original and fused model side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from qkexport.match import MatchReport, find_attention
from qkexport.onnx_function import attention_function
from qkexport.rewrite import fuse_attention

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
    nodes = [node for node in copy.graph if node.op_type == "QKNormAttention"]
    for i, (node, match) in enumerate(zip(nodes, _in_order(report, nodes), strict=True)):
        node.overload = f"v{i}"
        function = attention_function(match, opset=copy.graph.opset_imports[""], overload=f"v{i}")
        copy.functions[function.identifier()] = function
    copy.ir_version = max(copy.ir_version, 10)
    return FusedModel(report, copy)


def _in_order(report: MatchReport, nodes: list[ir.Node]) -> list[object]:
    by_name = {f"{match.name}_fused": match.signature for match in report.matches}
    return [by_name[node.name] for node in nodes]


def run(model: ir.Model, inputs: Arrays) -> list[npt.NDArray[np.generic]]:
    """Runs a model in stock ONNX Runtime, unoptimized so that both models meet the same kernels."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(inputs)))
