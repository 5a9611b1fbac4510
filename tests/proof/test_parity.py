"""Whole models: equal ones pass, wrong ones do not, and every public false pass is caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from exported_attention import Exported, exported_attention

from qkexport.compare import Status
from qkexport.errors import BackendUnavailableError, UsageError
from qkexport.proof import candidate as candidate_module
from qkexport.proof.parity import ParityResult, ParitySettings, parity
from qkexport.proof.results import Evidence, Verdict
from qkexport.run import open_runner

STOCK = ("ort-stock",)


@pytest.fixture
def exported() -> Exported:
    return exported_attention()


@pytest.fixture
def exported_half() -> Exported:
    return exported_attention(torch.float16)


@pytest.fixture
def exported_bfloat16() -> Exported:
    return exported_attention(torch.bfloat16)


def _run(exported: Exported, path: Path | None = None, **options: object) -> ParityResult:
    settings = options.pop("settings", ParitySettings())
    return parity(
        exported.source,
        [exported.path if path is None else path],
        backends=options.pop("backends", STOCK),  # type: ignore[arg-type]
        settings=settings,  # type: ignore[arg-type]
        **options,  # type: ignore[arg-type]
    )


def _statuses(result: ParityResult) -> set[Status]:
    return {
        output.status
        for candidate in result.candidates
        for case in candidate.cases
        for output in case.outputs
    }


def test_an_export_matches_its_module(exported: Exported) -> None:
    result = _run(exported)
    assert result
    (candidate,) = result.candidates
    assert candidate.verdict is Verdict.MATCHED
    assert candidate.evidence is Evidence.MATCHED
    assert len(candidate.cases) >= 6
    assert {case.shapes["ids"] for case in candidate.cases} >= {(2, 9), (1, 1)}
    assert set(result.seconds) == {"loading", "oracle", "pytorch", "candidates", "compare"}


def test_all_of_the_full_suite_matches(exported: Exported) -> None:
    result = _run(exported, suite="full")
    assert result
    shapes = {case.shapes["ids"] for case in result.candidates[0].cases}
    assert (2, 64) in shapes  # the largest length that the model allows


@pytest.mark.parametrize("dtype", ["exported_half", "exported_bfloat16"])
def test_narrow_models_match_within_what_pytorch_errs(
    request: pytest.FixtureRequest, dtype: str
) -> None:
    result = _run(request.getfixturevalue(dtype))
    assert result
    emulated = any("emulated" in note for note in result.candidates[0].notes)
    assert emulated == (dtype == "exported_bfloat16")


def test_a_narrow_candidate_is_judged_by_pytorch_in_its_type(
    exported: Exported, exported_half: Exported
) -> None:
    result = _run(exported, exported_half.path)
    assert result
    output = result.candidates[0].cases[0].outputs[0]
    assert output.dtype == "float16"
    assert output.baseline_error is not None
    assert output.baseline_error > 1e-4  # PyTorch's in float16, not in float32


def _zeros(model: ir.Model) -> None:
    _after_output(model, "Mul", np.zeros(1, dtype=np.float32))


def _slightly_off(model: ir.Model) -> None:
    _after_output(model, "Mul", np.array([1.0001], dtype=np.float32))


def _after_output(model: ir.Model, op_type: str, constant: np.ndarray) -> None:
    """Applies an operator with a constant to the output, which keeps its name."""
    old = model.graph.outputs[0]
    value = ir.Value(name="constant", const_value=ir.tensor(constant))
    model.graph.register_initializer(value)
    node = ir.node(op_type, [old, value], name="edit")
    new = node.outputs[0]
    new.name, old.name = old.name, "before_edit"
    new.type, new.shape = old.type, old.shape
    model.graph.append(node)
    model.graph.outputs[0] = new


def _swapped_heads(model: ir.Model) -> None:
    """The first two of three heads of width 8 change places in front of the last product."""
    consumer = next(node for node in reversed(list(model.graph)) if node.op_type in _PRODUCTS)
    old = consumer.inputs[0]
    order = np.r_[8:16, 0:8, 16:24].astype(np.int64)
    value = ir.Value(name="order", const_value=ir.tensor(order))
    model.graph.register_initializer(value)
    gather = ir.node("Gather", [old, value], {"axis": -1}, name="edit")
    model.graph.insert_before(consumer, gather)
    consumer.replace_input_with(0, gather.outputs[0])


_PRODUCTS = ("MatMul", "Gemm")


def _no_mask(model: ir.Model) -> None:
    (attention,) = (node for node in model.graph if node.op_type == "Attention")
    attention.replace_input_with(3, None)


def _renamed(model: ir.Model) -> None:
    model.graph.outputs[0].name = "scores"


def _extra_output(model: ir.Model) -> None:
    node = next(node for node in model.graph if node.op_type == "Attention")
    node.outputs[0].name = "extra"
    model.graph.outputs.append(node.outputs[0])


@pytest.mark.parametrize(
    ("edit", "status"),
    [
        (_zeros, Status.DEGENERATE),
        (_slightly_off, Status.MISMATCHED),
        (_swapped_heads, Status.MISMATCHED),
        (_no_mask, Status.MISMATCHED),
        (_extra_output, Status.EXTRA),
    ],
    ids=["zeros", "slightly-off", "swapped-heads", "no-mask", "extra-output"],
)
def test_a_wrong_candidate_fails(
    exported: Exported, tmp_path: Path, edit: Callable[[ir.Model], None], status: Status
) -> None:
    result = _run(exported, exported.edited(tmp_path, edit))
    assert not result
    (candidate,) = result.candidates
    assert candidate.verdict is Verdict.MISMATCHED
    assert candidate.evidence is Evidence.RAN
    assert status in _statuses(result)


def test_names_that_tracing_made_up_are_paired_by_position(
    exported: Exported, tmp_path: Path
) -> None:
    result = _run(exported, exported.edited(tmp_path, _renamed))
    assert result
    assert "outputs paired by position" in result.candidates[0].notes


def test_names_of_an_onnx_reference_must_be_kept_or_declared(
    exported: Exported, tmp_path: Path
) -> None:
    renamed = exported.edited(tmp_path, _renamed)
    result = parity(exported.path, [renamed], backends=STOCK)
    assert not result
    assert _statuses(result) == {Status.MISSING, Status.EXTRA}
    declared = ParitySettings(declared={"scores": exported.output})
    assert parity(exported.path, [renamed], backends=STOCK, settings=declared)


def test_an_onnx_file_matches_itself(exported: Exported) -> None:
    result = parity(exported.path, [exported.path], backends=STOCK)
    assert result
    assert result.candidates[0].notes == ()


def test_a_declared_name_must_exist(exported: Exported) -> None:
    for declared in ({"nothing": exported.output}, {exported.output: "nothing"}):
        result = _run(exported, settings=ParitySettings(declared=declared))
        assert result.candidates[0].verdict is Verdict.FAILED
        assert "--map must name a tensor of the" in result.candidates[0].reason


def test_given_inputs_are_tried_alone(exported: Exported) -> None:
    given = {
        "ids": torch.tensor([[3, 1, 4, 1, 5]]),
        "mask": torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(),
    }
    result = _run(exported, inputs=given)
    assert result
    assert result.suite == "given"
    assert [case.label for case in result.candidates[0].cases] == ["given"]
    assert result.candidates[0].cases[0].shapes["ids"] == (1, 5)


def test_an_output_that_no_case_tests_fails_unless_allowed(tmp_path: Path) -> None:
    class Constant(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return 2 * x, torch.zeros_like(x)

    from qkexport.load import TorchSource
    from qkexport.trace import trace

    source = TorchSource("constant", Constant(), (torch.randn(3, 5),))
    path = tmp_path / "constant.onnx"
    model = trace(source, opset=20).model
    ir.save(model, path)
    name = str(model.graph.outputs[1].name)
    result = parity(source, [path], backends=STOCK)
    assert not result
    assert len(result.candidates[0].untested) == 1
    allowed = ParitySettings(allow_constant=frozenset(result.candidates[0].untested))
    assert parity(source, [path], backends=STOCK, settings=allowed), name


@pytest.fixture
def no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is built here, the plugin is not."""

    def open_without(source: Path, backend: str) -> object:
        if backend == "plugin":
            raise BackendUnavailableError("The plugin must be built, got none.")
        return open_runner(source, backend)

    monkeypatch.setattr(candidate_module, "open_runner", open_without)


@pytest.mark.usefixtures("no_plugin")
def test_an_absent_backend_is_skipped_with_its_reason(exported: Exported) -> None:
    result = _run(exported, backends=("ort-stock", "plugin"))
    assert result
    skipped = result.candidates[1]
    assert skipped.verdict is Verdict.SKIPPED
    assert skipped.reason == "The plugin must be built, got none."


@pytest.mark.usefixtures("no_plugin")
def test_a_required_backend_that_is_absent_fails(exported: Exported) -> None:
    result = _run(exported, require=("plugin",))
    assert not result
    assert result.absent == ("plugin",)


@pytest.mark.usefixtures("no_plugin")
def test_a_run_in_which_nothing_ran_proves_nothing(exported: Exported) -> None:
    assert not _run(exported, backends=("plugin",))


def test_candidates_are_also_held_against_each_other(
    exported: Exported, exported_half: Exported
) -> None:
    result = parity(exported.source, [exported.path, exported_half.path], backends=STOCK)
    assert result
    (pair,) = result.pairs
    assert pair.left.endswith("float32.onnx [ort-stock]")
    assert pair.right.endswith("float16.onnx [ort-stock]")
    assert 1e-5 < pair.max_abs_difference < 0.1


def test_equal_seeds_give_equal_runs_and_others_do_not(exported: Exported) -> None:
    first, second, other = (_run(exported, seed=seed) for seed in (1, 1, 2))
    errors = [
        [case.outputs[0].max_abs_error for case in result.candidates[0].cases]
        for result in (first, second, other)
    ]
    assert errors[0] == errors[1]
    assert errors[0] != errors[2]
    assert [case.seed for case in first.candidates[0].cases] != [
        case.seed for case in other.candidates[0].cases
    ]


def test_a_candidate_that_cannot_run_at_a_size_fails_there_alone(
    exported: Exported, tmp_path: Path
) -> None:
    def fix_batch(model: ir.Model) -> None:
        for value in model.graph.inputs:
            assert value.shape is not None
            value.shape = ir.Shape([2, *value.shape[1:]])

    result = _run(exported, exported.edited(tmp_path, fix_batch))
    (candidate,) = result.candidates
    assert candidate.verdict is Verdict.FAILED
    errors = {case.shapes["ids"]: case.error for case in candidate.cases}
    assert errors[2, 9] == ""
    assert "must be [2, length]" in errors[1, 1]


def test_sizes_that_the_reference_refuses_are_named() -> None:
    # tested on cases alone: see test_cases.py; here the result carries them
    result = ParityResult("r", "quick", 0, (), skipped_cases=("odd normal: no",))
    assert not result
    assert result.to_dict()["skipped_cases"] == ["odd normal: no"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backends": ("trt",)}, "Backend must be a known one, got 'trt'"),
        ({"backends": ("tensorrt",)}, "must run on a given backend, got tensorrt"),
        ({"suite": "huge"}, "Suite must be one of quick, full, got 'huge'"),
        ({"path": Path("missing.onnx")}, "Candidate must exist, got missing.onnx"),
    ],
    ids=["backend", "engine-backend", "suite", "candidate"],
)
def test_wrong_options_are_refused(
    exported: Exported, options: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        _run(exported, **options)  # type: ignore[arg-type]


def test_no_candidate_is_refused(exported: Exported) -> None:
    with pytest.raises(UsageError, match="Parity needs a candidate, got none"):
        parity(exported.source, [])


def test_a_given_tolerance_replaces_the_derived_one(exported: Exported, tmp_path: Path) -> None:
    off = exported.edited(tmp_path, _slightly_off)
    assert not _run(exported, off)
    assert _run(exported, off, settings=ParitySettings(rtol=1e-3, atol=1e-6))
    tight = _run(exported, settings=ParitySettings(atol=1e-12))
    assert not tight
    output = tight.candidates[0].cases[0].outputs[0]
    assert output.derivation == "given: atol 1e-12 + rtol 0 * |oracle|"


def test_failing_inputs_are_saved_and_fail_again(exported: Exported, tmp_path: Path) -> None:
    from qkexport.proof.replay import load_replay

    off = exported.edited(tmp_path, _slightly_off)
    result = _run(exported, off, settings=ParitySettings(failures=tmp_path / "failures"))
    failed = [case for case in result.candidates[0].cases if not case]
    assert failed
    saved = load_replay(Path(failed[0].replay))
    assert (saved.candidate, saved.backend, saved.label) == (str(off), *STOCK, failed[0].label)
    again = _run(exported, off, inputs=saved.inputs)
    before, after = failed[0].outputs[0], again.candidates[0].cases[0].outputs[0]
    assert dataclasses.replace(before) == after


def test_nothing_is_saved_when_all_is_well(exported: Exported, tmp_path: Path) -> None:
    _run(exported, settings=ParitySettings(failures=tmp_path / "failures"))
    assert list(tmp_path.iterdir()) == []


def test_the_graph_itself_can_be_a_candidate(exported: Exported, tmp_path: Path) -> None:
    """Where PyTorch's reading of a graph is wrong too, the export is; else the runtime is."""
    result = _run(exported, backends=("torch", "ort-stock"))
    assert result
    assert [candidate.backend for candidate in result.candidates] == ["torch", "ort-stock"]
    assert "ONNX graph interpreted by PyTorch" in result.candidates[0].notes
    wrong = _run(exported, exported.edited(tmp_path, _no_mask), backends=("torch",))
    assert wrong.candidates[0].verdict is Verdict.MISMATCHED


def test_each_candidate_runs_on_the_backends_that_can_run_it(
    exported: Exported, tmp_path: Path
) -> None:
    engine = tmp_path / "model.engine"
    engine.write_bytes(b"no engine")
    result = parity(exported.source, [exported.path, engine], backends=("ort-stock", "tensorrt"))
    assert [candidate.backend for candidate in result.candidates] == ["ort-stock", "tensorrt"]
    assert result.candidates[0].verdict is Verdict.MATCHED
    assert result.candidates[1].evidence is Evidence.BUILT
    with pytest.raises(UsageError, match="Backend tensorrt must be able to run a candidate"):
        _run(exported, backends=("ort-stock", "tensorrt"))


def test_evidence_says_who_ran_what(exported: Exported, tmp_path: Path) -> None:
    right = _run(exported, seed=5)
    assert right.tier(right.candidates[0]) == "MATCHED(ort-stock, suite quick, seed 5)"
    wrong = _run(exported, exported.edited(tmp_path, _slightly_off))
    assert wrong.tier(wrong.candidates[0]) == "RAN(ort-stock)"
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    failed = _run(exported, broken)
    assert failed.tier(failed.candidates[0]) == "CONVERTED"
