"""What an .onnx file must not do to the reader: loops, bombs, and data from outside its folder.

ONNX files are data from anywhere. Each rule here stands for a file that would otherwise hang the
reader, exhaust its memory, or read a file that its author was not given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.errors import LoadError

if TYPE_CHECKING:
    import onnx_ir as ir

# Functions that call functions double at each level: 40 levels are a file of 4 KB and 10^12 nodes.
_MOST_NODES: Final = 5_000_000
_LONGEST_RANGE: Final = 1 << 24
_MOST_ELEMENTS: Final = 1 << 48  # more bytes than any machine addresses


def check_model(path: Path, model: ir.Model) -> None:
    """Checks a model that was just read; its weights are not read.

    Raises:
        LoadError: A value that is read is made by nothing, nodes form a cycle, functions call
            themselves or grow without bound, a tensor's type or size is impossible or not that of
            its data, or external data is absent, too short, or outside the model's folder.
    """
    check_values(path, model)
    check_order(path, model)
    check_functions(path, model)
    for name, tensor in _tensors(model):
        check_tensor(path, name, tensor)
    for root in _roots(model):
        for node in root.all_nodes():
            check_node(path, node)


def check_values(path: Path, model: ir.Model) -> None:
    """What nodes and outputs read is an input, an initializer or another node's output."""
    for value in _values_read(model):
        if value.producer() or value.is_graph_input() or value.is_initializer():
            continue
        message = f"Source {path} must make each value that it reads, got {value.name!r}: nothing"
        raise LoadError(f"{message} makes it.", hint="export it again.")


def check_order(path: Path, model: ir.Model) -> None:
    """Nodes of every graph form no cycle; unsorted ones are sorted."""
    for graph in _roots(model):
        seen: set[ir.Value | None] = set()
        sorted_already = True
        for node in graph:
            if any(v is not None and v.producer() and v not in seen for v in node.inputs):
                sorted_already = False
                break
            seen.update(node.outputs)
        if not sorted_already:
            try:
                graph.sort()
            except ValueError:
                message = f"Source {path} must be a graph without cycles, got one in {graph.name}."
                raise LoadError(message, hint="export it again.") from None


def check_functions(path: Path, model: ir.Model) -> None:
    """Functions end, and the model has a bounded number of nodes once all are written out."""
    sizes: dict[ir.OperatorIdentifier, int] = {}
    open_calls: set[ir.OperatorIdentifier] = set()

    def expanded(nodes: Iterable[ir.Node]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            function = model.functions.get(key)
            if function is None:
                total += 1
                continue
            if key in open_calls:
                message = (
                    f"Source {path} must have functions that end, got {key[1]} calling itself."
                )
                raise LoadError(message)
            if key not in sizes:
                open_calls.add(key)
                sizes[key] = expanded(function.all_nodes())
                open_calls.remove(key)
            total += sizes[key]
        return total

    try:
        total = expanded(model.graph.all_nodes())
    except RecursionError:
        message = f"Source {path} must have functions of a sane depth, got hundreds of levels."
        raise LoadError(message) from None
    if total > _MOST_NODES:
        message = f"Source {path} must have at most {_MOST_NODES} nodes, got {total:.3g}"
        raise LoadError(f"{message} once its functions are written out.")


def check_tensor(path: Path, name: str, tensor: ir.TensorProtocol) -> None:
    """A tensor's type and size are possible and its data is there, in the model's folder."""
    import onnx_ir as ir

    try:
        known = tensor.dtype is not ir.DataType.UNDEFINED
    except ValueError:  # onnx_ir looks a number up as late as here
        known = False
    if not known:
        message = f"Tensor {name} of {path} must have an element type that ONNX defines"
        raise LoadError(f"{message}, got none.", hint="save or download the model again.")
    dims = tensor.shape.numpy()
    if any(dim < 0 for dim in dims) or math.prod(dims) > _MOST_ELEMENTS:
        message = f"Tensor {name} of {path} must have a possible shape, got {list(dims)}."
        raise LoadError(message)
    if isinstance(tensor, ir.ExternalTensor):
        _check_external(path, tensor)
        return
    found = len(tensor.raw.raw_data) if isinstance(tensor, ir.TensorProtoTensor) else 0
    if found and found != tensor.nbytes:
        message = f"Tensor {name} of {path} must hold {tensor.nbytes} bytes, got {found}."
        raise LoadError(message, hint="save or download the model again.")


def check_node(path: Path, node: ir.Node) -> None:
    """Attributes and constants that shape inference would follow without a look are sane."""
    import onnx_ir as ir

    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.UNDEFINED:
            message = f"{node.op_type} {node.name} of {path} must give its attributes types"
            raise LoadError(f"{message}, got none for {attribute.name}.", hint="export it again.")
    if node.domain not in ("", "ai.onnx"):
        return
    if node.op_type == "Transpose" and "perm" in node.attributes:
        attribute = node.attributes["perm"]
        ints = attribute.type is ir.AttributeType.INTS
        order = list(attribute.as_ints()) if ints and not attribute.is_ref() else []
        if not ints or Counter(order) != Counter(range(len(order))):
            message = f"Transpose {node.name} of {path} must have a permutation, got {order[:8]}."
            raise LoadError(message, hint="export the model again.")
    if node.op_type == "Range":
        # inference counts the elements of a constant range one by one
        constants = [_number(value) for value in node.inputs]
        if len(constants) == 3 and None not in constants:
            start, limit, step = (float(number or 0) for number in constants)
            if not step or not abs((limit - start) / step) <= _LONGEST_RANGE:
                message = f"Range {node.name} of {path} must have at most {_LONGEST_RANGE} elements"
                raise LoadError(f"{message}, got {start:g} to {limit:g} by {step:g}.")


def _number(value: ir.Value | None) -> float | None:
    constant = value.const_value if value is not None else None
    if constant is None and value is not None and (node := value.producer()) is not None:
        attribute = node.attributes.get("value") if node.op_type == "Constant" else None
        constant = attribute.as_tensor() if attribute is not None else None
    if constant is None or constant.size != 1:
        return None
    return float(constant.numpy().reshape(()))


def _check_external(path: Path, tensor: ir.ExternalTensor) -> None:
    location = Path(tensor.location)
    data = Path(tensor.path)
    folder = path.resolve().parent
    if location.is_absolute() or ".." in location.parts or not _is_inside(data, folder):
        message = f"Source {path} must keep external data in its own folder, got {location}."
        raise LoadError(message, note="a link out of the folder is refused too.")
    offset, length = tensor.offset or 0, tensor.length
    end = offset + (tensor.nbytes if length is None else length)
    if not data.is_file():
        message = f"Source {path} must have its external data beside it, got no {data}."
    elif offset < 0 or end < offset:
        message = f"Source {path} must name bytes of {data} that exist, got {offset} to {end}."
    elif data.stat().st_size < end:
        size = data.stat().st_size
        message = f"Source {path} needs {end} bytes of external data in {data}, got {size}."
    else:
        return
    raise LoadError(message, hint="copy the model and its data file together.")


def _is_inside(data: Path, folder: Path) -> bool:
    return data.resolve().is_relative_to(folder)


def _tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Weights of all graphs and constants of all nodes, subgraphs and functions included."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield str(value.name), value.const_value
    for root in _roots(model):
        for node in root.all_nodes():
            yield from _attribute_tensors(node)


def _values_read(model: ir.Model) -> Iterator[ir.Value]:
    """Inputs of all nodes and outputs of all graphs, subgraphs and functions included."""
    for root in _roots(model):
        yield from root.outputs
        for node in root.all_nodes():
            yield from (value for value in node.inputs if value is not None)
        for graph in root.subgraphs():
            yield from graph.outputs


def _roots(model: ir.Model) -> list[ir.Graph | ir.Function]:
    return [model.graph, *model.functions.values()]


def _attribute_tensors(node: ir.Node) -> Iterator[tuple[str, ir.TensorProtocol]]:
    import onnx_ir as ir

    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type is ir.AttributeType.TENSOR:
            yield f"{node.name}.{attribute.name}", attribute.value
        elif attribute.type is ir.AttributeType.TENSORS:
            yield from ((f"{node.name}.{attribute.name}", t) for t in attribute.value)
