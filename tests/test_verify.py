"""The check of a conversion passes what is right and catches what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from qk_norm_models import LearnedScale, MaskedAttention, VisionAttention
from torch import nn

from qkexport.errors import UnsupportedModelError, VerificationError
from qkexport.example_inputs import complete_source
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.load import TorchSource, load_source
from qkexport.trace import Trace, trace
from qkexport.verification import Verification
from qkexport.verify import verify_conversion

IDS = {"ids": InputSpec("ids", (2, 7), "int64")}
MASKED = {**IDS, "mask": InputSpec("mask", (2, 1, 7, 7), "bool")}
IMAGE = {"x": InputSpec("x", (2, 7, 24))}


def _trace(
    module: nn.Module, inputs: Any, dynamic: Any = (), dtype: torch.dtype | None = None
) -> Trace:
    source = TorchSource("m", module.eval())
    return trace(complete_source(source, inputs, dynamic, dtype), opset=24)


def _verify(traced: Trace, folder: Path) -> Verification:
    path = folder / "candidate.onnx"
    ir.save(traced.model, path)
    return verify_conversion(traced.source, path)


def _labels(verification: Verification) -> list[str]:
    return [case.label for case in verification.result.cases]


@pytest.mark.parametrize(
    ("module", "inputs"),
    [(VisionAttention, IMAGE), (MaskedAttention, IDS), (MaskedAttention, MASKED)],
)
def test_a_faithful_model_passes(
    module: Callable[[], nn.Module], inputs: Any, tmp_path: Path
) -> None:
    verification = _verify(_trace(module(), inputs), tmp_path)
    assert verification
    assert 0 < verification.max_abs_error < 1e-5
    assert _labels(verification) == ["traced"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_faithful_model_of_a_narrow_type_passes(dtype: torch.dtype, tmp_path: Path) -> None:
    verification = _verify(_trace(VisionAttention(), IMAGE, dtype=dtype), tmp_path)
    assert verification
    emulated = any("bf16 emulated" in note for note in verification.all_notes)
    assert emulated is (dtype is torch.bfloat16)


def test_dynamic_models_are_checked_at_other_sizes(tmp_path: Path) -> None:
    dynamic = [DynamicDim("ids", 0, "batch", 1, 4), DynamicDim("ids", 1, "seq")]
    verification = _verify(_trace(MaskedAttention(), IDS, dynamic), tmp_path)
    assert verification
    sizes = [case.shapes["ids"] for case in verification.result.cases]
    assert sizes == [(2, 7), (1, 1), (3, 21)]


def _scaled(name: str, factor: float) -> Callable[[ir.Model], None]:
    def mutate(model: ir.Model) -> None:
        value = model.graph.initializers[name]
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(factor), name=name)

    return mutate


def _attribute(op_type: str, attribute: ir.Attr) -> Callable[[ir.Model], None]:
    def mutate(model: ir.Model) -> None:
        nodes = [node for node in model.graph if node.op_type == op_type]
        assert nodes
        for node in nodes:
            node.attributes[attribute.name] = attribute

    return mutate


def _swapped(model: ir.Model) -> None:
    """Keys take the gain of the queries."""
    norms = [node for node in model.graph if "Normalization" in node.op_type]
    norms[1].replace_input_with(1, norms[0].inputs[1])


def _without_mask(model: ir.Model) -> None:
    node = next(node for node in model.graph if node.op_type == "Attention")
    node.replace_input_with(3, None)


MUTANTS: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[ir.Model], None]]] = {
    "a gain off by a thousandth": (VisionAttention, IMAGE, _scaled("q_norm.weight", 1.001)),
    "gains of q and k exchanged": (VisionAttention, IMAGE, _swapped),
    "another epsilon": (
        VisionAttention,
        IMAGE,
        _attribute("LayerNormalization", ir.AttrFloat32("epsilon", 1e-3)),
    ),
    "another scale": (
        VisionAttention,
        IMAGE,
        _attribute("Attention", ir.AttrFloat32("scale", 0.36)),
    ),
    "a causal mask that was not there": (
        VisionAttention,
        IMAGE,
        _attribute("Attention", ir.AttrInt64("is_causal", 1)),
    ),
    "a mask that is gone": (MaskedAttention, MASKED, _without_mask),
    "a causal mask that is gone": (
        MaskedAttention,
        IDS,
        _attribute("Attention", ir.AttrInt64("is_causal", 0)),
    ),
    "a temperature off by a hundredth": (LearnedScale, IMAGE, _scaled("g", 1.01)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_model_that_computes_something_else_is_caught(name: str, tmp_path: Path) -> None:
    module, inputs, mutate = MUTANTS[name]
    traced = _trace(module(), inputs)
    mutate(traced.model)
    verification = _verify(traced, tmp_path)
    assert not verification
    assert any(output.rows_failed for output in verification.result.cases[0].outputs)


def test_a_mask_that_only_fits_the_traced_size_is_caught(tmp_path: Path) -> None:
    """Right at the traced size, wrong at the others: only another size can tell."""

    class Positions(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.arange(x.shape[1], device=x.device)

    traced = _trace(Positions(), {"x": InputSpec("x", (2, 7))}, [DynamicDim("x", 1, "n")])
    node = next(node for node in traced.model.graph if node.op_type == "Mul")
    other = next(
        i for i, value in enumerate(node.inputs) if value is not traced.model.graph.inputs[0]
    )
    frozen = ir.Value(name="frozen", const_value=ir.tensor(np.arange(7, dtype=np.float32)))
    traced.model.graph.register_initializer(frozen)
    node.replace_input_with(other, frozen)
    verification = _verify(traced, tmp_path)
    assert not verification
    assert [bool(case) for case in verification.result.cases] == [True, False, False]


def test_real_examples_are_checked_as_they_are(tmp_path: Path) -> None:
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    inputs = {**IDS, "mask": mask}
    partly = _verify(_trace(MaskedAttention(), inputs), tmp_path)
    assert _labels(partly) == ["traced"], "ids are a stand-in"
    inputs = {"ids": torch.arange(14).reshape(2, 7), "mask": mask}
    fully = _verify(_trace(MaskedAttention(), inputs), tmp_path)
    assert _labels(fully) == ["given", "traced"]
    assert fully


def test_sizes_that_the_source_refuses_are_skipped_and_named(tmp_path: Path) -> None:
    class Short(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling() and x.shape[1] > 8:
                message = "at most 8 positions"
                raise ValueError(message)
            return x.cumsum(1)

    traced = _trace(Short(), {"x": InputSpec("x", (2, 7))}, [DynamicDim("x", 1, "n")])
    verification = _verify(traced, tmp_path)
    assert verification
    assert [case.shapes["x"][1] for case in verification.result.cases] == [7, 1, 8]


def test_a_source_that_runs_on_nothing_is_an_error(tmp_path: Path) -> None:
    class Refuses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                message = "not today"
                raise ValueError(message)
            return x * 2

    with pytest.raises(VerificationError, match="got not today") as caught:
        _verify(_trace(Refuses(), IMAGE), tmp_path)
    assert caught.value.exit_code == 1
    assert "--no-verify" in (caught.value.hint or "")


def test_an_onnx_source_with_an_operator_nobody_knows_cannot_be_checked(tmp_path: Path) -> None:
    traced, path = _trace(VisionAttention(), IMAGE), tmp_path / "m.onnx"
    ir.save(traced.model, path)
    traced.model.graph.node(0).domain = "somebody"
    traced.model.graph.opset_imports["somebody"] = 1
    ir.save(traced.model, tmp_path / "source.onnx")
    with pytest.raises(VerificationError, match="a known operator, got somebody") as caught:
        verify_conversion(load_source(tmp_path / "source.onnx"), path)
    assert "--no-verify" in (caught.value.hint or "")


def test_an_output_that_never_varies_proves_nothing(tmp_path: Path) -> None:
    class Zero(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0

    verification = _verify(_trace(Zero(), IMAGE), tmp_path)
    assert not verification
    assert "zero everywhere" in next(iter(verification.result.cases[0].vacuous.values()))


def test_one_constant_output_beside_a_real_one_is_told_and_passes(tmp_path: Path) -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 0, x.exp()

    verification = _verify(_trace(Both(), IMAGE), tmp_path)
    assert verification
    assert len(verification.result.untested) == 1


def test_a_model_that_changes_its_inputs_is_compared_on_the_same_inputs(tmp_path: Path) -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x.exp()

    assert _verify(_trace(InPlace(), IMAGE), tmp_path)


def test_a_file_that_onnx_runtime_cannot_load_is_an_error(tmp_path: Path) -> None:
    traced = _trace(VisionAttention(), IMAGE)
    traced.model.graph.node(0).domain = "nowhere"
    with pytest.raises(UnsupportedModelError, match="must load on ort-stock"):
        _verify(traced, tmp_path)


def test_a_failure_at_run_time_is_a_mismatch_that_says_why(tmp_path: Path) -> None:
    traced = _trace(MaskedAttention(), IDS)
    gather = next(node for node in traced.model.graph if node.op_type == "Gather")
    table = gather.inputs[0]
    assert table is not None
    assert table.const_value is not None
    short = ir.tensor(table.const_value.numpy()[:3], name="short")
    value = ir.Value(name="short", const_value=short, type=table.type, shape=ir.Shape([3, 24]))
    traced.model.graph.register_initializer(value)
    path = tmp_path / "m.onnx"
    gather.replace_input_with(0, value)
    ir.save(traced.model, path)
    gather.replace_input_with(0, table)
    verification = verify_conversion(traced.source, path)
    assert not verification
    assert "must run" in verification.result.cases[0].error
