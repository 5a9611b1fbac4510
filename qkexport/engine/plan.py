"""What a build will do, decided before anything is read: runtime, attention, targets, plugin."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from qkexport.engine.bindings import Bindings, Flavour, load_bindings
from qkexport.engine.choose import choose_attention, choose_runtime
from qkexport.engine.device import find_gpu
from qkexport.engine.options import AttentionChoice, BuildOptions
from qkexport.engine.plugin_library import find_plugin_library
from qkexport.engine.targets import resolve_targets
from qkexport.errors import BackendUnavailableError, UsageError


@dataclasses.dataclass(frozen=True)
class Plan:
    """The decisions of one build, with their reasons.

    Attributes:
        bindings: The module of the flavour.
        flavour: Which TensorRT.
        runtime_reason: Why this one.
        attention: `plugin` or `native`.
        attention_reason: Why this one.
        plugin: The plugin library, or None where the attention needs none.
        options: With the targets resolved.
        measured: Both kinds of attention are to be built and the faster one kept.
    """

    bindings: Bindings
    flavour: Flavour
    runtime_reason: str
    attention: AttentionChoice
    attention_reason: str
    plugin: Path | None
    options: BuildOptions
    measured: bool = False


def plan_build(runtime: str, attention: str, options: BuildOptions) -> Plan:
    """Decides what a build will do.

    Args:
        runtime: `auto` or a flavour.
        attention: `auto`, `plugin` or `native`.
        options: Targets may be open.

    Raises:
        UsageError: The wishes contradict each other.
        BackendUnavailableError: What they need is not here.
    """
    wanted = _attention(attention)
    chosen = choose_runtime(runtime, options.targets, wanted)
    flavour = chosen.flavour
    bindings = load_bindings(flavour)
    plugin = _plugin(wanted, flavour)
    decided, reason = choose_attention(wanted, flavour, plugin_found=plugin is not None)
    if flavour is Flavour.TENSORRT_RTX:
        targets = resolve_targets(options.targets)
    else:
        gpu = find_gpu()
        targets = (gpu.target,) if gpu else ()
    return Plan(
        bindings,
        flavour,
        chosen.reason,
        decided,
        reason,
        plugin if decided is AttentionChoice.PLUGIN else None,
        dataclasses.replace(options, targets=targets),
        measured=wanted is AttentionChoice.AUTO and plugin is not None and find_gpu() is not None,
    )


def _attention(text: str) -> AttentionChoice:
    try:
        return AttentionChoice(text)
    except ValueError:
        message = f"Attention must be a known choice, got {text!r}."
        raise UsageError(message, note=f"accepted: {', '.join(AttentionChoice)}.") from None


def _plugin(wanted: AttentionChoice, flavour: Flavour) -> Path | None:
    if wanted is AttentionChoice.NATIVE or not flavour.takes_plugins:
        return None
    try:
        return find_plugin_library()
    except BackendUnavailableError:
        if wanted is AttentionChoice.PLUGIN:
            raise
        return None
