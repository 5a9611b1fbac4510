"""The inputs that all contenders of a benchmark run on, drawn for the first of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from qkexport.domain import InputDomain, ModelDomain, SizeRange, onnx_domain, with_traced_sizes
from qkexport.engine.inspection import is_engine
from qkexport.engine.profiles import usual_sizes
from qkexport.errors import UsageError
from qkexport.index_bounds import index_bounds
from qkexport.input_options import InputSpec
from qkexport.load import OnnxSource
from qkexport.manifest import Manifest, manifest_path, read_manifest
from qkexport.proof.cases import Case, draw
from qkexport.proof.engine_sizes import optimum_sizes, within_engines
from qkexport.proof.open import open_source
from qkexport.proof.program_domain import example_tensors, index_bounds_of_program, program_domain
from qkexport.proof.values import Padding, Values
from qkexport.run.program import load_program
from qkexport.run.runner import TensorInfo, Tensors

if TYPE_CHECKING:
    from qkexport.load import Source

Given = Mapping[str, "torch.Tensor | InputSpec"]

_LABEL: Final = "benchmark"


@dataclasses.dataclass(frozen=True)
class _Model:
    """What is known of a model's inputs; as drawing needs it; see `Drawable`."""

    domain: ModelDomain
    index_bounds: dict[str, int]
    examples: Tensors


def draw_inputs(
    source: str, others: Sequence[Path], given: Given, *, seed: int, allow_pickle: bool
) -> dict[str, torch.Tensor]:
    """Inputs for a model: what was given, the rest drawn at the sizes that it is meant for.

    Those are, in this order: the sizes of given inputs, of the example a PyTorch model was traced
    with, the optimum of an engine among the contenders, and one sample of 128.

    Args:
        source: A path or factory name.
        others: Engines and models that will run on the same inputs.
        given: Values, or shapes to draw at.
        seed: Of what is drawn.
        allow_pickle: Unpickle the source; this can run any code.

    Raises:
        UsageError: A given input does not fit the model.
        LoadError: The source cannot be read.
    """
    model = _read(source, others, given, allow_pickle)
    files = [path for path in (Path(source), *others) if is_engine(path)]
    domain = within_engines(model.domain, files)
    domain = with_traced_sizes(domain, {name: tuple(x.shape) for name, x in given.items()})
    wanted = {**usual_sizes(domain), **optimum_sizes(domain, files)}
    sizes = {
        symbol: wanted[symbol] if span.traced is None else span.traced
        for symbol, span in domain.symbols.items()
    }
    case = Case(_LABEL, (sizes,), Values.NORMAL, Padding.NONE, seed)
    drawn = draw(dataclasses.replace(model, domain=domain), case, sizes)
    examples = {
        name: x
        for name, x in model.examples.items()
        if name in drawn and x.shape == drawn[name].shape
    }
    values = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
    return {**drawn, **examples, **values}


def _read(source: str, others: Sequence[Path], given: Given, allow_pickle: bool) -> _Model:
    path = Path(source)
    if is_engine(path):
        return _of_manifest(read_manifest(manifest_path(path)))
    models = [other for other in others if other.suffix == ".onnx"]
    opened: Source = open_source(source, given, (), models, allow_pickle)
    if isinstance(opened, OnnxSource):
        return _Model(onnx_domain(opened.model), index_bounds(opened.model), {})
    program = load_program(opened)
    return _Model(
        program_domain(program),
        index_bounds_of_program(program),
        example_tensors(program, opened.stand_ins),
    )


def _of_manifest(manifest: Manifest) -> _Model:
    """Inputs of an engine; every dimension that varies is a symbol of its own."""
    items = tuple(
        InputDomain(
            tensor.name,
            tensor.dtype,
            tuple(f"{tensor.name}_{axis}" if n < 0 else n for axis, n in enumerate(tensor.shape)),
        )
        for tensor in manifest.inputs
    )
    symbols = {symbol: SizeRange() for item in items for symbol in item.symbols}
    return _Model(ModelDomain(items, symbols), {}, {})


def feeds(inputs: tuple[TensorInfo, ...], drawn: Tensors, name: str) -> dict[str, torch.Tensor]:
    """Drawn inputs under the names, and in the floating types, of a contender.

    Args:
        inputs: What it takes.
        drawn: By the names of the model they were drawn for.
        name: Of the contender, for messages.

    Raises:
        UsageError: It takes other inputs.
    """
    own = [info.name for info in inputs]
    if not set(own) <= set(drawn):
        if len(own) != len(drawn):
            message = f"Model {name} must take the inputs {', '.join(drawn)}, got {', '.join(own)}."
            raise UsageError(message, hint="benchmark it alone, or give its inputs by --inputs.")
        drawn = dict(zip(own, drawn.values(), strict=True))  # names differ: by position
    return {info.name: _as_type(drawn[info.name], info) for info in inputs}


def _as_type(x: torch.Tensor, info: TensorInfo) -> torch.Tensor:
    return x.to(info.dtype) if x.dtype.is_floating_point == info.dtype.is_floating_point else x
