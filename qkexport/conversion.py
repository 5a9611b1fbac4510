"""`convert`: load, trace, match, rewrite, lower, verify, save."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkexport.attention_record import AttentionStatus, records_of
from qkexport.convert_options import (
    check_cache_options,
    check_options,
    check_required,
    required_count,
)
from qkexport.convert_result import ConvertResult
from qkexport.domain import onnx_domain
from qkexport.errors import UsageError
from qkexport.infer_types import complete_types
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.kv_cache import with_kv_cache
from qkexport.load import OnnxSource, Source, load_source
from qkexport.opset import DEFAULT_OPSET, at_opset
from qkexport.stage_clock import StageClock
from qkexport.staging import staged_model

if TYPE_CHECKING:
    from torch import Tensor

    from qkexport.trace import Trace

__all__ = ["ConvertResult", "convert"]


def convert(
    source: Any,
    output: str | Path,
    *,
    inputs: Mapping[str, Tensor | InputSpec] | None = None,
    dynamic: Iterable[DynamicDim | str] = (),
    dtype: str | None = None,
    form: str = "portable",
    runtime: str = "ort",
    opset: int | None = None,
    require_fused: int | str = 0,
    verify: bool = True,
    allow_pickle: bool = False,
    kv_cache: str | None = None,
    trust_remote_code: bool = False,
    seed: int = 0,
) -> ConvertResult:
    """Converts a model to ONNX with its QK-norm attentions fused, and checks the result.

    The output file appears whole or not at all: an existing one survives every failure, and so it
    does when the check fails or too few attentions are fused (the result is then false).

    Args:
        source: A path, also of a Hugging Face folder; `package.module:factory`; an nn.Module,
            alone or in a tuple with args, kwargs and dynamic_shapes as torch.export takes them;
            or an ExportedProgram.
        output: Path of the .onnx file; weights over 2 GB go to a file beside it.
        inputs: Example inputs of a PyTorch model by parameter name; sizes of the inputs of an
            ONNX model to check it at.
        dynamic: Axes that may vary, also as text: `ids:1=seq:1:512`.
        dtype: `float32`, `float16` or `bfloat16`: casts a PyTorch module, in place.
        form: `portable`, `fused` or `native`.
        runtime: `ort` or `tensorrt`; who reads the native or fused form.
        opset: ONNX opset, 17 to 25. None: 24 for PyTorch sources, its own for an ONNX model.
        require_fused: Fewest attentions that must be fused, or `all` with a norm on q or k.
        verify: Compare the result with the source numerically.
        allow_pickle: Unpickle the source; this can run any code.
        kv_cache: `concat` or `static`: a causal LM of transformers takes and gives its keys and
            values.
        trust_remote_code: Run the code that a Hugging Face folder brings along.
        seed: Of the random inputs of the check.

    Returns:
        What was found, fused and checked; true if all is as required and `output` was written.

    Raises:
        UsageError: An option is wrong or does not fit the source.
        LoadError: The source cannot be read.
        UnsupportedModelError: The model cannot be exported.
        BackendUnavailableError: The check needs ONNX Runtime, which is not installed.

    Example:
        >>> import torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> module = QKNormAttention(64, num_heads=4, causal="lower_right")
        >>> result = qkexport.convert((module, (torch.randn(2, 8, 64),)), "attention.onnx")
        >>> bool(result), result.fused, result.output.name
        (True, 1, 'attention.onnx')
    """
    from qkexport.export import save_model, to_form
    from qkexport.match import find_attention
    from qkexport.rewrite import fuse_attention
    from qkexport.rotary_batch import complete_rotary_batches
    from qkexport.verify_form import Target, verify_form

    axes = tuple(DynamicDim.parse(dim) if isinstance(dim, str) else dim for dim in dynamic)
    path = check_options(output, form, runtime, dtype, opset)
    check_cache_options(kv_cache, opset, inputs or {}, axes)
    check_required(require_fused)
    clock = StageClock()
    with clock.stage("load"):
        loaded = load_source(
            source,
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
            dtype=dtype,
        )
        if kv_cache is not None:
            loaded = with_kv_cache(loaded, kv_cache, dtype)
    with clock.stage("trace"):
        traced = _trace(loaded, inputs or {}, axes, dtype, opset)
    with clock.stage("match"):
        complete_types(traced.model)
        report = find_attention(traced.model)
        fuse_attention(traced.model, report)
        complete_rotary_batches(traced.model)
        fused = at_opset(traced, opset)
        model = to_form(fused, form, runtime=runtime)
    records = records_of(report, match=AttentionStatus.FUSED)
    result = ConvertResult(
        source=loaded.name,
        output=None,
        form=form,
        runtime=runtime,
        opset=model.opset_imports[""],
        attentions=records,
        required=required_count(require_fused, records),
        verification=None,
        seconds=clock.seconds,
    )
    if not result.enough_fused:
        return result
    if not verify:
        with clock.stage("save"):
            save_model(model, path)
        return dataclasses.replace(result, output=path)
    with contextlib.ExitStack() as stack:
        with clock.stage("save"):
            staged = stack.enter_context(staged_model(model, path))
        with clock.stage("verify"):
            target = Target(staged.path, fused, form, runtime)
            verification = verify_form(traced.source, target, inputs=inputs, seed=seed)
        result = dataclasses.replace(result, verification=verification)
        if result:
            staged.commit()
            result = dataclasses.replace(result, output=path)
    return result


def _trace(
    source: Source,
    inputs: Mapping[str, Tensor | InputSpec],
    dynamic: tuple[DynamicDim, ...],
    dtype: str | None,
    opset: int | None,
) -> Trace:
    import torch

    from qkexport.example_inputs import complete_source
    from qkexport.trace import Trace, trace
    from qkexport.verify import domain_at

    if isinstance(source, OnnxSource):
        for option, value in (("dynamic", dynamic), ("dtype", dtype)):
            if value:
                message = f"Option {option} must go with a PyTorch source, got {source.name}."
                raise UsageError(message, hint="an .onnx model has its types and axes built in.")
        domain_at(onnx_domain(source.model), inputs)  # refuses unfit inputs now, not after the work
        return Trace(source, source.model)
    kind = None if dtype is None else getattr(torch, dtype)
    return trace(complete_source(source, inputs, dynamic, kind), opset=opset or DEFAULT_OPSET)
