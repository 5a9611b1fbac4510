"""A builder configuration out of build options."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from qkexport.engine.bindings import Bindings, Flavour
from qkexport.engine.options import BuildOptions, Profile
from qkexport.engine.targets import set_targets
from qkexport.errors import BuildError, UsageError

if TYPE_CHECKING:
    import tensorrt as trt
    import tensorrt_rtx as rtx

_LOG: Final = logging.getLogger(__name__)


def make_config(
    bindings: Bindings,
    flavour: Flavour,
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    options: BuildOptions,
) -> trt.IBuilderConfig:
    """Everything that TensorRT is told besides the network.

    Args:
        bindings: The flavour's module.
        flavour: Which one it is.
        builder: Makes the configuration and its profiles.
        network: Its inputs get the profiles.
        options: Profiles complete, targets resolved.

    Raises:
        BuildError: TensorRT refuses an option.
    """
    config = builder.create_builder_config()
    config.profiling_verbosity = bindings.ProfilingVerbosity.DETAILED  # the inspector reads it
    if options.workspace is not None:
        config.set_memory_pool_limit(bindings.MemoryPoolType.WORKSPACE, options.workspace)
    if options.opt_level is not None:
        config.builder_optimization_level = options.opt_level
    for flag in _flags(bindings, options):
        config.set_flag(flag)
    if flavour is Flavour.TENSORRT_RTX:
        _say_what_rtx_lacks(options)
        set_targets(cast("rtx.IBuilderConfig", config), options.targets)
    _add_profiles(builder, network, config, options.profiles)
    return config


def _flags(bindings: Bindings, options: BuildOptions) -> list[trt.BuilderFlag]:
    flags = bindings.BuilderFlag
    wanted = [
        (options.refit, flags.REFIT),
        # Stripping keeps what the optimizer folded, so only the same weights fit back.
        (options.strip_weights, flags.STRIP_PLAN),
        (options.strip_weights and not options.refit, flags.REFIT_IDENTICAL),
        (options.version_compatible, flags.VERSION_COMPATIBLE),
    ]
    return [flag for on, flag in wanted if on]


def _say_what_rtx_lacks(options: BuildOptions) -> None:
    if options.opt_level is not None:
        _LOG.warning(
            "--opt-level has no effect on tensorrt-rtx: kernels are chosen on the user's GPU"
        )
    if options.timing_cache is not None:
        _LOG.warning(
            "--timing-cache has no effect on tensorrt-rtx: it times no kernel while it builds"
        )


def _add_profiles(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    profiles: Sequence[Profile],
) -> None:
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    for number, shapes in enumerate(profiles):
        profile = builder.create_optimization_profile()
        for tensor in inputs:
            if tensor.name in shapes:
                _set_shapes(profile, tensor, shapes)
        if config.add_optimization_profile(profile) != number:
            text = "; ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise BuildError(f"Optimization profile must be accepted by TensorRT, got {text}.")


def _set_shapes(profile: trt.IOptimizationProfile, tensor: trt.ITensor, shapes: Profile) -> None:
    shape = shapes[tensor.name]
    sizes = (shape.minimum, shape.optimum, shape.maximum)
    if tensor.is_shape_tensor:
        profile.set_shape_input(tensor.name, *map(list, sizes))
    elif len(tensor.shape) != len(shape.minimum):
        message = f"Values of input {tensor.name} must matter for shapes, got {shape}."
        raise UsageError(message, note="TensorRT uses the input as data alone.")
    else:
        profile.set_shape(tensor.name, *sizes)
