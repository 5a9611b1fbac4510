"""The file that TensorRT parses: the given one, or a copy of it lowered for the runtime."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from qkexport.domain import ModelDomain, onnx_domain
from qkexport.engine.bindings import Flavour
from qkexport.engine.by_reference import read_by_reference
from qkexport.engine.model_check import check_model
from qkexport.engine.options import AttentionChoice
from qkexport.errors import LoadError
from qkexport.files import sha256_of
from qkexport.missing_file import require_file
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A model as TensorRT will read it.

    Attributes:
        path: The file.
        domain: Its inputs.
        attention: Who computes the attention; None when the model has no QKNormAttention.
        num_attentions: How many nodes of it the given model has.
    """

    path: Path
    domain: ModelDomain
    attention: AttentionChoice | None
    num_attentions: int

    @property
    def op_version(self) -> int | None:
        return OP_VERSION if self.num_attentions else None


def read_model(path: Path) -> ir.Model:
    """Loads the graph; large weights stay on the disk.

    Raises:
        LoadError: The file is missing or is no ONNX model.
    """
    import onnx_ir as ir

    require_file("Model", path)
    try:
        model = ir.from_proto(read_by_reference(path))
    except LoadError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise LoadError(f"Model {path.name} must be an ONNX file, got {reason}.") from error
    for graph in model.graphs():
        ir.external_data.set_base_dir(graph, path.parent)
    _check_external_data(model, path)
    return model


def count_attentions(model: ir.Model) -> int:
    """QKNormAttention nodes in the graph and its subgraphs."""
    return sum(
        node.domain == OP_DOMAIN and node.op_type == OP_TYPE for node in model.graph.all_nodes()
    )


def prepare(
    model: ir.Model, path: Path, flavour: Flavour, attention: AttentionChoice, folder: Path
) -> Prepared:
    """Lowers a model to what the runtime needs, if it is not that already.

    Args:
        model: What `read_model` gave for `path`.
        path: Used as it is when there is nothing to lower.
        flavour: Which TensorRT.
        attention: `plugin` or `native`.
        folder: For a lowered copy.

    Raises:
        UnsupportedModelError: The model holds what TensorRT would ignore, or cannot be lowered.
    """
    domain = onnx_domain(model)
    count = count_attentions(model)
    if count:
        from qkexport.export import to_form

        form = "fused" if attention is AttentionChoice.PLUGIN else "native"
        model = to_form(model, form, runtime="tensorrt")
        path = _save_copy(model, folder / f"lowered.{path.name}")
    check_model(model, flavour)
    return Prepared(path, domain, attention if count else None, count)


def _save_copy(model: ir.Model, path: Path) -> Path:
    """Writes the graph; weights that lie in files are linked, not copied."""
    import onnx_ir as ir

    for file in external_files(model):
        link = path.with_name(file.name)
        if not link.exists():
            _link(file, link)
    ir.save(model, path)
    return path


def _link(file: Path, link: Path) -> None:
    """A second name, or a symbolic link where the file system has no second names for it.

    Of a symbolic link, which may be relative, what it means is linked.
    """
    try:
        link.hardlink_to(file.resolve())
    except OSError:
        link.symlink_to(file.resolve())


def model_digest(path: Path) -> str:
    """Digest over a model and its external data, as manifests have it.

    Raises:
        LoadError: The file is missing or is no ONNX model.
    """
    return sha256_of(*files_of_model(path, read_model(path)))


def files_of_model(path: Path, model: ir.Model) -> tuple[Path, ...]:
    """The file of a model, then those that hold weights of it."""
    return (path, *(file for file in external_files(model) if file != path.absolute()))


def external_files(model: ir.Model) -> list[Path]:
    """Files that hold weights of the model, each once."""
    return list({Path(tensor.path).absolute(): None for tensor in _external_tensors(model)})


def _external_tensors(model: ir.Model) -> list[ir.ExternalTensor]:
    import onnx_ir as ir

    values = (value for graph in model.graphs() for value in graph.initializers.values())
    tensors = (value.const_value for value in values)
    return [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]


def _check_external_data(model: ir.Model, path: Path) -> None:
    for tensor in _external_tensors(model):
        file = Path(tensor.path)
        if not file.is_file():
            message = f"Model {path.name} needs its external data, got no file {file}."
            raise LoadError(message, hint="copy the data file along with the model.")
        end = (tensor.offset or 0) + (tensor.length or tensor.nbytes)
        if file.stat().st_size < end:
            message = f"Model {path.name} needs all of its external data"
            raise LoadError(f"{message}, got {file.stat().st_size} of {end} bytes in {file}.")
