"""The float64 oracle of a PyTorch program: its exported graph, interpreted exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from qkexport.compare.tolerance import NOISE_DRAWS
from qkexport.interpret.blockwise import wide_linear
from qkexport.oracle.float64_mode import EXACT, exact_arithmetic
from qkexport.oracle.noise import RoundingNoise
from qkexport.run.inputs import checked_inputs
from qkexport.run.program import Program
from qkexport.run.runner import Tensors

_LINEAR: Final = torch.ops.aten.linear.default


class ProgramOracle:
    """Evaluates an exported program in float64.

    Weights are widened when an operator asks for them, those of linear layers block by block, so
    that little memory is needed beyond the model's own.

    Args:
        program: The model; its weights are not copied.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.inputs = program.inputs
        self.outputs = program.outputs

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Exact outputs by name: float64, or the model's integers.

        Raises:
            UsageError: An input is missing, unknown or of the wrong type.
        """
        return self._evaluate(inputs, None)

    def noisy(
        self,
        inputs: Tensors,
        *,
        draws: int = NOISE_DRAWS,
        narrow_to: torch.dtype | None = None,
    ) -> Iterator[dict[str, torch.Tensor]]:
        """Outputs under rounding noise, one evaluation a draw; see `RoundingNoise`."""
        for seed in range(draws):
            yield self._evaluate(inputs, RoundingNoise(seed, narrow_to))

    def _evaluate(self, inputs: Tensors, noise: RoundingNoise | None) -> dict[str, torch.Tensor]:
        checked = checked_inputs("the float64 oracle", self.inputs, inputs)
        interpreter = _Interpreter(self._program, noise)
        with exact_arithmetic():
            leaves = interpreter.run(*_placeholders(self._program, checked))
        specs = self._program.exported.graph_signature.output_specs
        names = self._program.names
        results = {
            names.get(spec.arg.name, spec.arg.name): leaf
            for spec, leaf in zip(specs, leaves, strict=True)
        }
        return {info.name: results[info.name] for info in self.outputs}


class _Interpreter(torch.fx.Interpreter):
    """Runs the graph; adds noise to what comes in and to what an operator has made afresh."""

    def __init__(self, program: Program, noise: RoundingNoise | None) -> None:
        super().__init__(program.exported.graph_module)
        self._noise = noise

    def fetch_args_kwargs_from_env(self, n: torch.fx.Node) -> tuple[Any, Any]:
        """Widens weights where they are used, so that one layer's are wide at a time."""
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        if n.target is torch.ops.aten.embedding.default:
            return args, kwargs  # the rows are widened when they have been looked up
        if n.target is _LINEAR:  # its weight is widened block by block
            given = zip((arg.name for arg in _LINEAR._schema.arguments), args, strict=False)
            named = {**dict(given), **kwargs}
            wide = {name: x if name == "weight" else self._widened(x) for name, x in named.items()}
            return (), wide
        return pytree.tree_map(self._widened, args), pytree.tree_map(self._widened, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not _LINEAR:
            return super().call_function(target, args, kwargs)
        with _disable_current_modes():
            x, weight, bias = kwargs["input"], kwargs["weight"], kwargs.get("bias")
            return wide_linear(x, weight, bias, self._widened)

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "placeholder" and isinstance(value, torch.Tensor) and value.dtype == EXACT:
            return self._perturbed(value, n.meta["val"].dtype)
        if n.op == "call_function" and _makes_a_tensor(n) and value.is_floating_point():
            return self._perturbed(value, n.meta["val"].dtype)
        return value

    def _widened(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype != EXACT:
            return self._perturbed(leaf.to(EXACT), leaf.dtype)
        return leaf

    def _perturbed(self, value: torch.Tensor, stored: torch.dtype) -> torch.Tensor:
        return value if self._noise is None else self._noise.perturbed(value, stored)


def _makes_a_tensor(node: torch.fx.Node) -> bool:
    """True for an operator whose result is neither a view of an argument nor one itself."""
    schema = getattr(node.target, "_schema", None)
    value = node.meta.get("val")
    if schema is None or not isinstance(value, torch.Tensor):
        return False
    return all(result.alias_info is None for result in schema.returns)


def _placeholders(program: Program, inputs: Tensors) -> list[Any]:
    exported = program.exported
    values: list[Any] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            tensor = isinstance(spec.arg, TensorArgument)
            name = program.names.get(spec.arg.name, "")
            values.append(_wide_copy(inputs[name]) if tensor else spec.arg.value)
        elif spec.kind is InputKind.PARAMETER:
            # as it is: any operator on it, a view even, would widen the whole
            values.append(exported.state_dict[spec.target])
        else:
            own = exported.state_dict.get(spec.target, exported.constants.get(spec.target))
            # a graph may write into its buffers: it writes into a copy
            values.append(_wide_copy(own) if isinstance(own, torch.Tensor) else own)
    return values


def _wide_copy(x: torch.Tensor) -> torch.Tensor:
    return x.detach().to(EXACT, copy=True) if x.is_floating_point() else x.detach().clone()
