"""`inspect`: what is in a model file, without running or changing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkexport.attention_record import AttentionRecord, AttentionStatus, records_of
from qkexport.errors import UsageError
from qkexport.infer_types import complete_types
from qkexport.load import OnnxSource, load_source
from qkexport.spec import OP_DOMAIN, OP_TYPE

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclasses.dataclass(frozen=True)
class InspectResult:
    """What is in an ONNX model.

    Attributes:
        path: The file.
        form: `portable` or `fused` where the model holds QKNormAttention nodes, else `plain`.
        opsets: Version of each operator domain.
        inputs: Name to type and shape.
        outputs: Name to type and shape.
        weight_bytes: Size of the weights.
        attentions: Every attention, in graph order.
    """

    path: Path
    form: str
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    weight_bytes: int
    attentions: tuple[AttentionRecord, ...]

    @property
    def fused(self) -> int:
        """Attentions that are QKNormAttention nodes."""
        return self._count(AttentionStatus.FUSED)

    @property
    def fusable(self) -> int:
        """Attentions that `convert` would fuse."""
        return self._count(AttentionStatus.FUSABLE)

    @property
    def found(self) -> int:
        """Attentions with a norm on queries or keys."""
        return len(self.attentions) - self._count(AttentionStatus.NO_QK_NORM)

    def __bool__(self) -> bool:
        return True  # that a model could be read is all that is asked

    def _count(self, status: AttentionStatus) -> int:
        return sum(record.status is status for record in self.attentions)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "path": str(self.path),
            "kind": "onnx",
            "form": self.form,
            "opsets": {domain or "ai.onnx": version for domain, version in self.opsets.items()},
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "weight_bytes": self.weight_bytes,
            "attentions": [record.to_dict() for record in self.attentions],
            "fused": self.fused,
            "fusable": self.fusable,
            "found": self.found,
        }


def inspect(path: str | Path) -> InspectResult:
    """Lists what an .onnx file holds, its attentions above all.

    Args:
        path: The model; its external data is not read.

    Raises:
        LoadError: The file is missing, damaged or no model.
        UsageError: The file is a model of another kind.

    Example:
        >>> import torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> source = QKNormAttention(64, num_heads=4), (torch.randn(2, 8, 64),)
        >>> _ = qkexport.convert(source, "attention.onnx", verify=False)
        >>> result = qkexport.inspect("attention.onnx")
        >>> result.form, result.fused, str(result.attentions[0].spec.qk_norm)
        ('portable', 1, 'rms')
    """
    from qkexport.match import find_attention

    path = Path(path)
    if path.exists() and path.suffix != ".onnx":
        message = f"Only .onnx files can be inspected, got {path}."
        raise UsageError(message, hint="convert PyTorch sources first: qkexport convert SOURCE")
    source = load_source(path)
    if not isinstance(source, OnnxSource):
        raise UsageError(f"File {path} must hold an ONNX graph, got another kind of model.")
    model = source.model
    complete_types(model)
    return InspectResult(
        path=path,
        form=_form(model),
        opsets=dict(model.opset_imports),
        inputs={value.name or "": _type(value) for value in model.graph.inputs},
        outputs={value.name or "": _type(value) for value in model.graph.outputs},
        weight_bytes=_weight_bytes(model),
        attentions=records_of(find_attention(model), match=AttentionStatus.FUSABLE),
    )


def _form(model: ir.Model) -> str:
    nodes = [node for node in model.graph if (node.domain, node.op_type) == (OP_DOMAIN, OP_TYPE)]
    if not nodes:
        return "plain"
    bodies = any(domain == OP_DOMAIN for domain, _, _ in model.functions)
    return "portable" if bodies else "fused"


def _type(value: ir.Value) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else "unknown"
    if value.shape is None:
        return dtype
    dims = ",".join(str(dim) for dim in value.shape)
    return f"{dtype}[{dims}]"


def _weight_bytes(model: ir.Model) -> int:
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
