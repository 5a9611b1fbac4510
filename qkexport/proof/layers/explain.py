"""Says what is wrong with one attention whose query, key and value are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir
import torch

from qkexport.compare.results import WorstElement
from qkexport.export.node import spell_by_position
from qkexport.interpret import Interpreter
from qkexport.proof.layers.points import AttentionPoint
from qkexport.proof.layers.results import Place
from qkexport.proof.mutants import MUTANTS, Mutant, Site
from qkexport.reference import reference_attention
from qkexport.run.onnx_types import ONNX_DTYPES
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION

_EXPLAINED = 0.8  # share of a difference that one key must account for to be named
_FAITHFUL = 1e-2  # of the difference to the reference: what a right explanation may leave


@dataclasses.dataclass(frozen=True)
class Captured:
    """One attention with the tensors that went through it.

    Attributes:
        point: The node.
        inputs: By the operator's names.
        output: What came out.
    """

    point: AttentionPoint
    inputs: Mapping[str, torch.Tensor]
    output: torch.Tensor


def explain(reference: Captured, candidate: Captured) -> list[str]:
    """Sentences about one attention, the most telling first.

    Args:
        reference: The attention in float64.
        candidate: The same attention as the candidate computed it.
    """
    reasons = _declared_differences(reference, candidate)
    return reasons or _as_if(candidate, reference.output)


def _declared_differences(reference: Captured, candidate: Captured) -> list[str]:
    """Attributes and inputs in which the nodes themselves differ."""
    theirs, ours = reference.point.signature.spec, candidate.point.signature.spec
    reasons = []
    for name in (field.name for field in dataclasses.fields(ours)):
        left, right = getattr(ours, name), getattr(theirs, name)
        if left != right and name != "norm_rounding":
            reasons.append(f"{name} is {_text(left)}, the reference has {_text(right)}")
    for name in reference.inputs.keys() - candidate.inputs.keys():
        reasons.append(f"{name} is absent, the reference has it")
    for name in candidate.inputs.keys() - reference.inputs.keys():
        reasons.append(f"{name} is present, the reference has none")
    for name in sorted(candidate.inputs.keys() & reference.inputs.keys()):
        if name not in ("query", "key", "value") and _differ(
            reference.inputs[name], candidate.inputs[name]
        ):
            reasons.append(f"{name} holds other values than the reference's")
    return reasons


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _differ(theirs: torch.Tensor, ours: torch.Tensor) -> bool:
    if theirs.shape != ours.shape:
        return theirs.numel() != ours.numel()  # the same gain with other axes of size 1
    x, y = theirs.double(), ours.double()
    unit = torch.finfo(ours.dtype).eps if ours.is_floating_point() else 0.0
    close = (x - y).abs() <= 64 * unit * x.abs().max().clamp_min(1)
    return not bool((close | (x == y) | (x.isnan() & y.isnan())).all())


def _as_if(candidate: Captured, expected: torch.Tensor) -> list[str]:
    """The known error that gives the candidate's output from its own inputs, if there is one."""
    spec = candidate.point.signature.spec
    right = reference_attention(spec, candidate.inputs)["output"]
    found = candidate.output.double()
    apart = float((found - right).nan_to_num(nan=1e30).abs().max())
    if apart <= 1e-3 * float((found - expected).nan_to_num(nan=1e30).abs().max()):
        return ["the node computes what it says from its inputs, but not what the reference does"]
    for mutant in MUTANTS.values():
        wrong = _mutated_output(candidate, mutant)
        if wrong is None or wrong.shape != found.shape:
            continue
        left = float((found - wrong).nan_to_num(nan=1e30).abs().max())
        if left <= _FAITHFUL * apart:
            return [f"the backend computes it as if: {mutant.description.lower()} ({mutant.name})"]
    return ["the backend computes this node wrongly, in none of the known ways"]


def _mutated_output(captured: Captured, mutant: Mutant) -> torch.Tensor | None:
    model, node = _single_node(captured)
    try:
        if not mutant.edit(Site(model, node)):
            return None
        outputs = Interpreter(model, exact=True).run(captured.inputs)
    except Exception:
        return None  # the error does not fit these inputs
    return next(iter(outputs.values()))


def _single_node(captured: Captured) -> tuple[ir.Model, ir.Node]:
    """A graph of this attention alone, its tensors as inputs."""
    values = {
        name: ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType(ONNX_DTYPES[x.dtype])),
            shape=ir.Shape(x.shape),
        )
        for name, x in captured.inputs.items()
    }
    spec = captured.point.signature.spec
    attributes = spec.to_attributes(input_roles=",".join(values), output_roles="output")
    node = ir.node(
        OP_TYPE, list(values.values()), attributes=attributes, domain=OP_DOMAIN, name="attention"
    )
    node.outputs[0].name = "output"
    node.outputs[0].type = values["query"].type
    imports = {"": 24, OP_DOMAIN: OP_VERSION}
    graph = ir.Graph(list(values.values()), node.outputs, nodes=[node], opset_imports=imports)
    spell_by_position(node)
    return ir.Model(graph, ir_version=10), node


def find_place(reference: Captured, candidate: Captured, worst: WorstElement) -> Place:
    """Batch entry, head, query and the key that accounts for most of the difference there.

    Args:
        reference: The attention in float64.
        candidate: The same attention as the candidate computed it.
        worst: Of the comparison of their outputs.
    """
    spec = reference.point.signature.spec
    if reference.point.signature.rank == 4:
        batch, head, query = worst.index[0], worst.index[1], worst.index[2]
    else:
        width = reference.output.shape[-1] // spec.num_heads
        batch, query, head = worst.index[0], worst.index[1], worst.index[2] // width
    key, share = _guilty_key(reference, candidate, batch, head, query)
    if share < _EXPLAINED:
        return Place(batch, head, query)
    return Place(batch, head, query, key, share)


def _guilty_key(
    reference: Captured, candidate: Captured, batch: int, head: int, query: int
) -> tuple[int, float]:
    """The key whose weight alone, were it wrong, would explain most of a row's difference.

    With one weight wrong and the others in proportion, the output moves along the line from it to
    that key's value.
    """
    group = reference.point.signature.spec.group_size
    values = _by_head(reference.inputs["value"], reference)[batch, head // group].double()
    past = reference.inputs.get("past_value")
    if past is not None:
        values = torch.cat([past[batch, head // group].double(), values])
    right = _by_head(reference.output, reference)[batch, head, query].double()
    wrong = _by_head(candidate.output, reference)[batch, head, query].double()
    moved, lines = wrong - right, values - right
    if not torch.isfinite(moved).all() or not moved.abs().max() or not len(lines):
        return 0, 0.0
    along = (lines @ moved) / lines.square().sum(dim=1).clamp_min(1e-300)
    left = (moved - along[:, None] * lines).square().sum(dim=1) / moved.square().sum()
    key = int(left.argmin())
    return key, 1.0 - float(left[key])


def _by_head(x: torch.Tensor, captured: Captured) -> torch.Tensor:
    """`[B,H,S,D]` of query, key, value or output."""
    if x.dim() == 4:
        return x
    spec = captured.point.signature.spec
    heads = spec.num_kv_heads if x is captured.inputs["value"] else spec.num_heads
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
