"""From a PyTorch module or an ONNX file to a checked ONNX file; nothing half-written between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from qk_norm_models import (
    HEADS,
    WIDTH,
    GroupedQueries,
    LearnedScale,
    MaskedAttention,
    Plain,
    Sinks,
    VisionAttention,
)
from torch import nn

import qkexport
from qkexport import rewrite
from qkexport.attention_record import AttentionStatus
from qkexport.errors import LoadError, UnsupportedModelError, UsageError
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.trace import exporter_noise_logged

IDS = {"ids": InputSpec("ids", (2, 7), "int64")}
MASKED = {**IDS, "mask": InputSpec("mask", (2, 1, 7, 7), "bool")}
BIASED = {**IDS, "mask": InputSpec("mask", (2, HEADS, 7, 7))}
IMAGE = {"x": InputSpec("x", (2, 7, WIDTH))}
CASES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "layer norm": (VisionAttention, IMAGE),
    "rms, causal": (MaskedAttention, IDS),
    "rms, boolean mask": (MaskedAttention, MASKED),
    "rms, additive mask": (MaskedAttention, BIASED),
    "l2, learned scale": (LearnedScale, IMAGE),
    "rms, grouped queries": (GroupedQueries, IMAGE),
}


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


_RARE = [pytest.param(opset, marks=pytest.mark.nightly) for opset in (18, 22, 23, 25)]


@pytest.mark.parametrize("opset", [20, 24, *_RARE])
@pytest.mark.parametrize("name", CASES)
def test_a_module_becomes_one_fused_node_that_stock_onnx_runtime_runs(
    name: str, opset: int, tmp_path: Path
) -> None:
    build, inputs = CASES[name]
    path = tmp_path / "m.onnx"
    result = qkexport.convert(build(), path, inputs=inputs, opset=opset, require_fused="all")
    assert result, result.to_dict()
    assert (result.fused, result.found, result.opset) == (1, 1, opset)
    assert _operators(path).count("QKNormAttention") == 1
    assert result.verification is not None
    assert result.verification.max_abs_error < 1e-5
    onnx.checker.check_model(path)
    _session(path)


def test_the_outputs_are_those_of_eager_pytorch_on_inputs_of_any_size(tmp_path: Path) -> None:
    module, path = MaskedAttention().eval(), tmp_path / "m.onnx"
    dynamic = [DynamicDim("ids", 0, "batch"), DynamicDim("ids", 1, "seq")]
    assert qkexport.convert(module, path, inputs=IDS, dynamic=dynamic)
    session = _session(path)
    for shape in ((1, 1), (3, 5), (1, 97)):
        ids = torch.randint(0, 59, shape)
        (found,) = session.run(None, {"ids": ids.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, module(ids).numpy(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_module_is_cast_before_it_is_converted(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    result = qkexport.convert(MaskedAttention(), path, inputs=IDS, dtype=dtype, require_fused=1)
    assert result, result.to_dict()
    model = ir.load(path)
    assert {value.dtype for value in model.graph.outputs} == {ir.DataType[dtype.upper()]}
    notes = result.verification.all_notes if result.verification else ()
    assert any("bf16 emulated" in note for note in notes) is (dtype == "bfloat16")


FORMS = [
    ("portable", "ort"),
    ("fused", "ort"),
    ("fused", "tensorrt"),
    ("native", "ort"),
    ("native", "tensorrt"),
]


@pytest.mark.parametrize(("form", "runtime"), FORMS)
def test_every_form_is_checked_and_says_what_stood_for_it(
    form: str, runtime: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    result = qkexport.convert(VisionAttention(), path, inputs=IMAGE, form=form, runtime=runtime)
    assert result
    assert result.verification is not None
    twin = any("portable twin was checked" in note for note in result.verification.all_notes)
    assert twin is (form == "fused")
    model = ir.load(path)
    (roles,) = [n.attributes.get_string("input_roles", "") for n in model.graph if n.domain] or [""]
    assert bool(roles) is ((form, runtime) == ("fused", "tensorrt"))
    assert bool(model.functions) is (form == "portable")
    assert ("QKNormAttention" in _operators(path)) is (form != "native")


@pytest.mark.parametrize(("form", "runtime"), FORMS)
def test_forms_convert_into_each_other(form: str, runtime: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert qkexport.convert(MaskedAttention(), first, inputs=IDS)
    result = qkexport.convert(first, second, form=form, runtime=runtime)
    assert result, result.to_dict()
    assert [record.status for record in result.attentions] == [AttentionStatus.FUSED]
    if form != "native":
        third = tmp_path / "third.onnx"
        assert qkexport.convert(second, third, require_fused="all")
        ids = {"ids": np.arange(14).reshape(2, 7)}
        one, two = (_session(path).run(None, ids)[0] for path in (first, third))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("opset", [20, 23, 24])
def test_an_onnx_file_of_another_exporter_converts(opset: int, tmp_path: Path) -> None:
    source, path = tmp_path / "raw.onnx", tmp_path / "m.onnx"
    module, ids = MaskedAttention().eval(), torch.randint(0, 59, (2, 7))
    with exporter_noise_logged():
        torch.onnx.export(
            module,
            (ids,),
            source,
            dynamic_shapes=({0: "batch", 1: "seq"},),
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    result = qkexport.convert(source, path, require_fused="all")
    assert result, result.to_dict()
    assert result.opset == opset
    assert result.verification is not None
    assert len(result.verification.result.cases) == 3
    for shape in ((1, 1), (5, 13)):
        fresh = {"ids": np.random.default_rng(0).integers(0, 59, shape)}
        one, two = (_session(file).run(None, fresh)[0] for file in (source, path))
        np.testing.assert_allclose(one, two, atol=1e-5, rtol=0)


def test_an_onnx_file_moves_to_a_higher_opset_when_asked(tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert qkexport.convert(MaskedAttention(), first, inputs=IDS, opset=20)
    result = qkexport.convert(first, second, opset=24, require_fused="all")
    assert result
    assert result.opset == ir.load(second).opset_imports[""] == 24


def test_an_onnx_file_does_not_move_to_a_lower_opset(tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    assert qkexport.convert(MaskedAttention(), first, inputs=IDS, opset=24)
    with pytest.raises(UnsupportedModelError, match="convertible to opset 18, got 24"):
        qkexport.convert(first, second, opset=18)
    assert not second.exists()


def test_a_file_can_be_converted_in_place(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert qkexport.convert(MaskedAttention(), path, inputs=IDS)
    assert qkexport.convert(path, path, form="fused")
    assert qkexport.inspect(path).form == "fused"


def test_an_exported_program_and_its_file_convert(tmp_path: Path) -> None:
    program = torch.export.export(
        MaskedAttention().eval(),
        (torch.zeros(2, 7, dtype=torch.int64),),
        dynamic_shapes=({1: torch.export.Dim("seq", max=59)},),
    )
    torch.export.save(program, tmp_path / "m.pt2")
    for source in (program, tmp_path / "m.pt2"):
        result = qkexport.convert(source, tmp_path / "m.onnx", require_fused=1)
        assert result
        assert result.verification is not None
        assert [case.label for case in result.verification.result.cases] == [
            "given",
            "traced",
            "one",
            "odd",
        ]


def test_a_module_comes_with_its_inputs_and_axes_as_text(tmp_path: Path) -> None:
    source = (MaskedAttention(), (torch.arange(14).reshape(2, 7),))
    result = qkexport.convert(source, tmp_path / "m.onnx", dynamic=["ids:1=seq:1:64"])
    assert result
    assert result.verification is not None
    lengths = [case.shapes["ids"][1] for case in result.verification.result.cases]
    assert lengths == [7, 7, 1, 21]


def test_a_module_that_calls_the_operator_needs_no_matching(tmp_path: Path) -> None:
    class Direct(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = torch.ops.qkexport.qk_norm_attention(
                q, k, v, num_heads=3, num_kv_heads=1, scale=0.3, causal="upper_left"
            )
            return y

    import qkexport.torch_op

    inputs = {
        "q": InputSpec("q", (2, 7, 24)),
        "k": InputSpec("k", (2, 7, 8)),
        "v": InputSpec("v", (2, 7, 8)),
    }
    result = qkexport.convert(Direct(), tmp_path / "m.onnx", inputs=inputs, require_fused="all")
    assert result, result.to_dict()
    assert result.attentions[0].spec is not None
    assert result.attentions[0].spec.group_size == 3


def test_attentions_that_are_not_fused_are_listed_with_their_reason(tmp_path: Path) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normed, self.plain, self.sinks = VisionAttention(), Plain(), Sinks()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.normed(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            return torch.add(self.plain(y, y, y), self.sinks(y))

    path = tmp_path / "m.onnx"
    result = qkexport.convert(Mixed(), path, inputs=IMAGE)
    assert result
    statuses = sorted(str(record.status) for record in result.attentions)
    assert statuses == ["fused", "no-qk-norm", "skipped"]
    assert (result.fused, result.found) == (1, 2)
    for record in result.attentions:
        assert (record.spec is None) is (record.status is not AttentionStatus.FUSED)
        assert (record.reason is None) is (record.status is AttentionStatus.FUSED)
    refused = qkexport.convert(
        Mixed(), tmp_path / "n.onnx", inputs=IMAGE, require_fused="all", verify=False
    )
    assert not refused
    assert refused.required == 2
    assert refused.output is None
    assert not (tmp_path / "n.onnx").exists()


@pytest.mark.parametrize("required", ["all", 1])
def test_finding_no_attention_is_not_having_fused_all(required: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    result = qkexport.convert(
        nn.Linear(3, 3), path, inputs={"input": InputSpec("input", (2, 3))}, require_fused=required
    )
    assert not result
    assert not path.exists()
    assert qkexport.convert(nn.Linear(3, 3), path, inputs={"input": InputSpec("input", (2, 3))})


def _wrong_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the rewrite: every fused node gets another scale."""
    right = rewrite.fuse_attention

    def wrong(model: ir.Model, report: Any) -> None:
        right(model, report)
        for node in model.graph:
            if node.op_type == "QKNormAttention":
                node.attributes["scale"] = ir.AttrFloat32("scale", 0.5)

    monkeypatch.setattr(rewrite, "fuse_attention", wrong)


def test_a_mismatch_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _wrong_scale(monkeypatch)
    path = tmp_path / "m.onnx"
    result = qkexport.convert(VisionAttention(), path, inputs=IMAGE)
    assert not result
    assert result.output is None
    assert result.verification is not None
    assert result.verification.max_abs_error > 1e-3
    assert list(tmp_path.iterdir()) == []
    assert qkexport.convert(VisionAttention(), path, inputs=IMAGE, verify=False)
    assert path.exists()


def test_an_existing_output_survives_every_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"precious")
    wrong: list[Callable[[], Any]] = [
        lambda: qkexport.convert(tmp_path / "missing.onnx", path),
        lambda: qkexport.convert(VisionAttention(), path),
        lambda: qkexport.convert(VisionAttention(), path, inputs=IMAGE, require_fused=2),
        lambda: qkexport.convert(VisionAttention(), path, inputs={"x": InputSpec("x", (3,))}),
    ]
    for attempt in wrong:
        with contextlib.suppress(LoadError, UsageError, UnsupportedModelError):
            assert not attempt()
        assert path.read_bytes() == b"precious"
    _wrong_scale(monkeypatch)
    assert not qkexport.convert(VisionAttention(), path, inputs=IMAGE)
    monkeypatch.setattr("qkexport.verify_form.verify_conversion", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        qkexport.convert(VisionAttention(), path, inputs=IMAGE)
    assert path.read_bytes() == b"precious"
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "small"}, "form must be one of portable, fused, native, got 'small'"),
        ({"runtime": "ie"}, "runtime must be one of ort, tensorrt, got 'ie'"),
        ({"dtype": "int8"}, "dtype must be one of float32, float16, bfloat16, got 'int8'"),
        ({"opset": 16}, "opset must be one of 17, .*25, got 16"),
        ({"runtime": "tensorrt"}, "for TensorRT must be fused or native, got 'portable'"),
        ({"require_fused": "some"}, "must be a count or 'all', got 'some'"),
        ({"require_fused": -1}, "must be a count or 'all', got -1"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        qkexport.convert(VisionAttention(), tmp_path / "m.onnx", inputs=IMAGE, **options)


@pytest.mark.parametrize("output", ["m.pt", "folder.onnx", "missing/m.onnx"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    output: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UsageError, match="Output must be"):
        qkexport.convert("no_such_module:factory", tmp_path / output)


@pytest.mark.parametrize("option", [{"dtype": "float16"}, {"dynamic": [DynamicDim("ids", 0, "n")]}])
def test_an_onnx_source_has_its_types_and_axes_built_in(
    option: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    qkexport.convert(MaskedAttention(), path, inputs=IDS, verify=False)
    with pytest.raises(UsageError, match="must go with a PyTorch source"):
        qkexport.convert(path, tmp_path / "n.onnx", **option)


def test_inputs_of_an_onnx_source_choose_the_sizes_of_the_check(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    dynamic = [DynamicDim("ids", 1, "seq")]
    assert qkexport.convert(MaskedAttention(), path, inputs=IDS, dynamic=dynamic, verify=False)
    result = qkexport.convert(
        path, tmp_path / "n.onnx", inputs={"ids": InputSpec("ids", (2, 11), "int64")}
    )
    assert result.verification is not None
    assert result.verification.result.cases[0].shapes == {"ids": (2, 11)}


def test_weights_outside_the_file_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkexport.export.save.LARGEST_SINGLE_FILE", 0)
    monkeypatch.setattr("qkexport.export.save.save_model.__kwdefaults__", {"single_file_limit": 0})
    path = tmp_path / "m.onnx"
    module = VisionAttention()
    assert qkexport.convert(module, path, inputs=IMAGE)
    assert qkexport.convert(module, path, inputs=IMAGE), "over a model that has data of its own"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    _session(path)
    assert qkexport.convert(path, "again.onnx", require_fused=1)
    names = sorted(file.name for file in tmp_path.iterdir() if file.is_file())
    assert names[0] == "m.onnx"
    assert len(names) == 2, f"one model and its data, no rest of the first: {names}"


def test_a_result_serializes_to_the_contract(tmp_path: Path) -> None:
    document = qkexport.convert(VisionAttention(), tmp_path / "m.onnx", inputs=IMAGE).to_dict()
    assert document["fused"] == document["found"] == 1
    assert document["output"] == str(tmp_path / "m.onnx")
    (attention,) = document["attentions"]
    assert set(attention) == {"node", "status", "spec"}
    assert attention["status"] == "fused"
    assert attention["spec"]["qk_norm"] == "layer"
    assert document["verified"]["passed"] is True
    assert document["verified"]["max_abs_error"] > 0
