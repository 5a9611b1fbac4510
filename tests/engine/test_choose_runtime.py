"""Which TensorRT builds, and why, on machines of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkexport.engine import choose, plan, plugin_library
from qkexport.engine.bindings import Flavour
from qkexport.engine.choose import choose_attention, choose_runtime
from qkexport.engine.device import Gpu, find_gpu
from qkexport.engine.options import AttentionChoice, BuildOptions
from qkexport.engine.plan import plan_build
from qkexport.errors import BackendUnavailableError, UsageError

ADA = Gpu("an Ada GPU", "sm_89")
AUTO, PLUGIN, NATIVE = AttentionChoice


def _machine(monkeypatch: pytest.MonkeyPatch, gpu: Gpu | None, *, full: bool = True) -> None:
    monkeypatch.setattr(choose, "find_gpu", lambda: gpu)
    monkeypatch.setattr(
        choose, "is_installed", lambda flavour: full or flavour is Flavour.TENSORRT_RTX
    )


@pytest.mark.parametrize(
    ("gpu", "full", "targets", "attention", "flavour", "reason"),
    [
        (None, True, (), AUTO, "tensorrt-rtx", "no GPU here"),
        (None, True, ("sm_89",), AUTO, "tensorrt-rtx", "GPUs that are not here"),
        (ADA, True, (), AUTO, "tensorrt", "builds for the an Ada GPU here"),
        (ADA, True, ("sm_89",), AUTO, "tensorrt", "runs the plugin"),
        (ADA, True, ("sm_89", "sm_120"), AUTO, "tensorrt-rtx", "GPUs that are not here"),
        (ADA, False, (), AUTO, "tensorrt-rtx", "the full TensorRT is not installed"),
        (ADA, True, (), PLUGIN, "tensorrt", "only the full TensorRT runs the plugin"),
        (ADA, True, (), NATIVE, "tensorrt", "builds for"),
    ],
)
def test_auto_chooses_what_can_do_it(
    monkeypatch: pytest.MonkeyPatch,
    gpu: Gpu | None,
    full: bool,
    targets: tuple[str, ...],
    attention: AttentionChoice,
    flavour: str,
    reason: str,
) -> None:
    _machine(monkeypatch, gpu, full=full)
    chosen = choose_runtime("auto", targets, attention)
    assert (chosen.flavour, reason in chosen.reason) == (flavour, True)


def test_a_plugin_is_never_built_with_rtx(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, ADA)
    with pytest.raises(UsageError, match="needs the runtime tensorrt, got tensorrt-rtx"):
        choose_runtime("tensorrt-rtx", (), PLUGIN)


def test_the_full_tensorrt_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, None)
    with pytest.raises(BackendUnavailableError, match="got no GPU"):
        choose_runtime("tensorrt", (), AUTO)


def test_the_full_tensorrt_builds_for_no_other_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, ADA)
    assert choose_runtime("tensorrt", ("sm_89",), AUTO).flavour == "tensorrt"
    with pytest.raises(UsageError, match="builds for sm_89 here, got sm_120"):
        choose_runtime("tensorrt", ("sm_120",), AUTO)


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'onnx'"):
        choose_runtime("onnx", (), AUTO)


def test_an_unknown_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'flash'"):
        plan_build("auto", "flash", BuildOptions())


@pytest.mark.parametrize(
    ("wanted", "flavour", "found", "chosen"),
    [
        (AUTO, Flavour.TENSORRT_RTX, True, NATIVE),
        (AUTO, Flavour.TENSORRT, True, PLUGIN),
        (AUTO, Flavour.TENSORRT, False, NATIVE),
        (NATIVE, Flavour.TENSORRT, True, NATIVE),
    ],
)
def test_attention_that_cannot_be_measured_is_chosen_with_a_reason(
    wanted: AttentionChoice, flavour: Flavour, found: bool, chosen: AttentionChoice
) -> None:
    attention, reason = choose_attention(wanted, flavour, plugin_found=found)
    assert attention is chosen
    assert reason


def test_a_plugin_library_that_is_not_built_is_named_with_the_way_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _machine(monkeypatch, ADA)
    monkeypatch.setattr(plan, "load_bindings", lambda flavour: None)
    monkeypatch.setattr(plugin_library, "find_library", lambda name: None)
    with pytest.raises(BackendUnavailableError, match=r"libqkexport_trt\.so") as caught:
        plan_build("tensorrt", "plugin", BuildOptions())
    assert "--attention native" in str(caught.value)


def test_a_plugin_library_that_is_there_is_planned_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _machine(monkeypatch, ADA)
    monkeypatch.setattr(plan, "find_gpu", lambda: ADA)
    monkeypatch.setattr(plan, "load_bindings", lambda flavour: None)
    monkeypatch.setattr(plugin_library, "find_library", lambda name: tmp_path / name)
    decided = plan_build("auto", "auto", BuildOptions())
    assert decided.plugin == tmp_path / "libqkexport_trt.so"
    assert decided.attention is PLUGIN
    assert decided.options.targets == ("sm_89",)


def test_a_machine_without_a_driver_has_no_gpu() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    assert find_gpu() is None
