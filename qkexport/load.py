"""Turns whatever names a model into one of two values: a PyTorch source or an ONNX source.

Nothing is unpickled, and no file runs code, unless the caller allows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkexport.errors import LoadError
from qkexport.factory import call_factory, check_answer, is_factory_name
from qkexport.filetype import ACCEPTED, FileKind, identify
from qkexport.missing_file import missing_file
from qkexport.onnx_checks import check_model
from qkexport.tensor_names import TensorNames
from qkexport.trial import Trial

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import nn
    from torch.export import ExportedProgram


@dataclasses.dataclass(frozen=True)
class TorchSource:
    """A PyTorch model and what is known of its inputs.

    Attributes:
        name: How the user named it.
        module: Callable in eager PyTorch, in eval mode.
        args: Example positional inputs; may be incomplete.
        kwargs: Example keyword inputs; may be incomplete.
        dynamic_shapes: As torch.export.export takes them, or None.
        program: The exported program, where the source is one.
        stand_ins: Names of inputs whose values mean nothing, only their shapes and types.
        names: What inputs and outputs are called; None: as torch.export calls them.
        trials: Inputs to check the model with instead of drawn ones, where drawn ones would not
            fit together.
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None
    program: ExportedProgram | None = None
    stand_ins: frozenset[str] = frozenset()
    names: TensorNames | None = None
    trials: tuple[Trial, ...] = ()


@dataclasses.dataclass(frozen=True)
class OnnxSource:
    """An ONNX model; large tensors stay in their files.

    Attributes:
        name: How the user named it.
        model: The model in memory.
        path: The file it came from.
    """

    name: str
    model: ir.Model
    path: Path


Source = TorchSource | OnnxSource


def load_source(
    source: Any,
    *,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    dtype: str | None = None,
) -> Source:
    """Loads a model from a path, a factory name or a live PyTorch object.

    Args:
        source: `.onnx`, `.pt2`, pickled `.pt`/`.pth`, a local Hugging Face folder,
            `package.module:factory`, an nn.Module, a tuple as a factory returns it, or a
            torch.export.ExportedProgram.
        allow_pickle: Unpickle `.pt`/`.pth` files and `.bin` weights, and trust `.pt2` files. All
            can run any code.
        trust_remote_code: Run the code that a Hugging Face folder brings along.
        dtype: Load the weights of a Hugging Face folder in this type; None: as they are stored.

    Returns:
        A source; PyTorch modules are put into eval mode.

    Raises:
        LoadError: The source is missing, damaged, of an unknown kind or not to be trusted.
    """
    if isinstance(source, TorchSource | OnnxSource):
        return source
    if not isinstance(source, str | Path):
        return _wrap_object(source)
    path = Path(source)
    if not path.exists():
        if is_factory_name(str(source)):
            return _wrap_module(str(source), *call_factory(str(source)))
        raise missing_file("Source", path, note=ACCEPTED)
    if path.is_dir():
        from qkexport.hugging_face import load_folder

        return load_folder(
            path, dtype=dtype, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code
        )
    kind = identify(path, allow_pickle=allow_pickle)
    if kind is FileKind.ONNX:
        return _load_onnx(path)
    if kind is FileKind.PT2:
        from qkexport.pt2 import load_program

        return _wrap_program(str(path), load_program(path, allow_pickle=allow_pickle))
    return _wrap_module(str(path), _unpickle(path))


def _wrap_object(source: object) -> TorchSource:
    from torch import nn
    from torch.export import ExportedProgram

    name = type(source).__name__
    if isinstance(source, ExportedProgram):
        return _wrap_program(name, source)
    if isinstance(source, nn.Module):
        return _wrap_module(name, source)
    if isinstance(source, tuple):
        parts = check_answer("Source must hold", source)
        return _wrap_module(type(parts[0]).__name__, *parts)
    message = f"Source must be a path, a factory name or a PyTorch model, got {name}."
    raise LoadError(message, note=ACCEPTED)


def _wrap_module(
    name: str,
    module: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> TorchSource:
    from torch import jit

    if isinstance(module, jit.ScriptModule):
        message = f"Source {name} must be a Python module, got TorchScript."
        raise LoadError(message, hint="use the module that torch.jit.script was given.")
    return TorchSource(name, module.eval(), args, dict(kwargs or {}), dynamic_shapes)


def _wrap_program(name: str, program: ExportedProgram) -> TorchSource:
    args, kwargs = program.example_inputs or ((), {})
    return TorchSource(name, program.module(), tuple(args), dict(kwargs), program=program)


def _unpickle(path: Path) -> nn.Module:
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as error:
        message = f"Source {path} needs its classes to be importable, got {error}."
        hint = "run from the folder of the code that defined the module, or convert a factory."
        raise LoadError(message, hint=hint) from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise LoadError(f"Source {path} must be a complete pickle, got {text}.") from error
    if isinstance(loaded, torch.nn.Module):
        return loaded
    kind = type(loaded).__name__
    raise LoadError(f"Source {path} must hold an nn.Module, got {kind}.", note=ACCEPTED)


def _load_onnx(path: Path) -> OnnxSource:
    import onnx_ir as ir

    try:
        model = ir.load(path)
        nodes = len(model.graph)
    except Exception as error:
        message = f"Source {path} must be an ONNX model, got {type(error).__name__}: {error}."
        raise LoadError(message, hint="save or download it again.") from error
    if not nodes and not model.graph.outputs:
        raise LoadError(f"Source {path} must be an ONNX model, got one without a graph.")
    check_model(path, model)
    return OnnxSource(str(path), model, path)
