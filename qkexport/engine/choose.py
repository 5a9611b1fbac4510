"""Which TensorRT and which attention a build uses, each with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from qkexport.engine.bindings import Flavour, is_installed
from qkexport.engine.device import Gpu, find_gpu
from qkexport.engine.options import AttentionChoice
from qkexport.errors import BackendUnavailableError, UsageError
from qkexport.names import suggest

AUTO: Final = "auto"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """The chosen flavour.

    Attributes:
        flavour: Which TensorRT.
        reason: Why, as half a sentence.
    """

    flavour: Flavour
    reason: str


def choose_runtime(wanted: str, targets: Sequence[str], attention: AttentionChoice) -> Runtime:
    """The flavour to build with.

    Args:
        wanted: `auto` or a flavour.
        targets: Compute capabilities; only TensorRT-RTX builds for others than the GPU here.
        attention: `plugin` needs the full TensorRT.

    Raises:
        UsageError: The wishes contradict each other.
        BackendUnavailableError: What they need is not here.
    """
    gpu = find_gpu()
    runtime = _automatic(targets, attention, gpu) if wanted == AUTO else _named(wanted)
    _check(runtime.flavour, targets, attention, gpu)
    return runtime


def _named(wanted: str) -> Runtime:
    try:
        return Runtime(Flavour(wanted), "as asked")
    except ValueError:
        message = f"Runtime must be a known one, got {wanted!r}."
        accepted = ", ".join([AUTO, *Flavour])
        hint = suggest(wanted, [AUTO, *Flavour])
        raise UsageError(message, note=f"accepted: {accepted}.", hint=hint) from None


def _automatic(targets: Sequence[str], attention: AttentionChoice, gpu: Gpu | None) -> Runtime:
    full, rtx = Flavour.TENSORRT, Flavour.TENSORRT_RTX
    if attention is AttentionChoice.PLUGIN:
        return Runtime(full, "only the full TensorRT runs the plugin")
    if targets and (gpu is None or tuple(targets) != (gpu.target,)):
        return Runtime(rtx, "only TensorRT-RTX builds for GPUs that are not here")
    if gpu is None:
        return Runtime(rtx, "no GPU here, and TensorRT-RTX builds without one")
    if is_installed(full):
        return Runtime(full, f"it builds for the {gpu.name} here and runs the plugin")
    return Runtime(rtx, "the full TensorRT is not installed")


def _check(
    flavour: Flavour, targets: Sequence[str], attention: AttentionChoice, gpu: Gpu | None
) -> None:
    if attention is AttentionChoice.PLUGIN and not flavour.takes_plugins:
        message = f"Attention as a plugin needs the runtime tensorrt, got {flavour}."
        note = "TensorRT-RTX has no plugins: it ends the process when it meets one."
        raise UsageError(message, note=note, hint="build with --attention native.")
    if flavour is not Flavour.TENSORRT:
        return
    if gpu is None:
        message = "Runtime tensorrt builds on the GPU it builds for, got no GPU."
        hint = "build with --runtime tensorrt-rtx, or on a machine with the target's GPU."
        raise BackendUnavailableError(message, hint=hint)
    if targets and tuple(targets) != (gpu.target,):
        message = f"Runtime tensorrt builds for {gpu.target} here, got {','.join(targets)}."
        raise UsageError(message, hint="build with --runtime tensorrt-rtx, or leave out --target.")


def choose_attention(
    wanted: AttentionChoice, flavour: Flavour, *, plugin_found: bool
) -> tuple[AttentionChoice, str]:
    """Who computes the attention when nothing can be measured, and why."""
    native = AttentionChoice.NATIVE
    if wanted is not AttentionChoice.AUTO:
        return wanted, "as asked"
    if not flavour.takes_plugins:
        return native, "TensorRT-RTX has no plugins"
    if not plugin_found:
        return native, "qkexport's plugin library is not built"
    return AttentionChoice.PLUGIN, "its precision is the operator's contract"
