"""The oracle of PyTorch programs is float64 wherever the model is not."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from qkexport.interpret import blockwise
from qkexport.load import TorchSource
from qkexport.oracle import ProgramOracle
from qkexport.oracle.float64_mode import exact_arithmetic
from qkexport.run.program import Program, load_program


class CastingAttention(nn.Module):
    """Casts as models do: statistics in float32 by hand, everything else in its own type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.project = nn.Linear(24, 3 * 24, dtype=dtype)
        self.gain = nn.Parameter(torch.randn(8).to(dtype))
        self.register_buffer("steps", torch.zeros((), dtype=torch.float32))

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.gain * wide.to(x.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (9, 8)).transpose(1, 2).chunk(3, dim=1)
        positions = torch.arange(x.shape[1], dtype=torch.float32) * 0.1
        v = v * positions.cos()[:, None].to(v.dtype)
        y = F.scaled_dot_product_attention(self._norm(q), self._norm(k), v, is_causal=True)
        return y.transpose(1, 2).flatten(2)


def _formula(model: CastingAttention, x: torch.Tensor) -> torch.Tensor:
    """The same by hand in float64; none of the model's code runs."""
    wide = copy.deepcopy(model).double()
    projected = x.double() @ wide.project.weight.T + wide.project.bias
    q, k, v = (part.reshape(*x.shape[:2], 3, 8) for part in projected.chunk(3, dim=-1))
    q, k = (p / (p.square().mean(-1, keepdim=True) + 1e-6).sqrt() * wide.gain for p in (q, k))
    positions = torch.arange(x.shape[1], dtype=torch.float64) * 0.1
    v = v * positions.cos()[:, None, None]
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 8**0.5
    scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2)


def _program(dtype: torch.dtype) -> tuple[CastingAttention, Program, torch.Tensor]:
    torch.manual_seed(3)
    model = CastingAttention(dtype).eval()
    x = torch.randn(2, 7, 24).to(dtype)
    return model, load_program(TorchSource("model", model, (x,))), x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_oracle_is_the_formula_in_float64(dtype: torch.dtype) -> None:
    model, program, x = _program(dtype)
    (found,) = ProgramOracle(program).run({"x": x}).values()
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, _formula(model, x).detach(), rtol=0, atol=1e-13)


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the floating types that operators return, below the oracle's own mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.seen.add(leaf.dtype)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_no_narrow_tensor_appears_in_the_oracle(dtype: torch.dtype) -> None:
    _, program, x = _program(dtype)
    with _Watcher() as watcher:
        ProgramOracle(program).run({"x": x})
    assert watcher.seen == {torch.float64}


def test_a_narrow_result_is_an_error() -> None:
    with (
        pytest.raises(AssertionError, match=r"must be float64 throughout, got torch\.float32"),
        exact_arithmetic(),
    ):
        torch.ops.aten.view_as_real(torch.zeros(2, dtype=torch.complex64))


def test_control_flow_blocks_are_exact_too() -> None:
    class Guarded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                return (x @ x.T).float() / 3

    x = torch.randn(5, 5)
    (found,) = ProgramOracle(load_program(TorchSource("g", Guarded(), (x,)))).run({"x": x}).values()
    torch.testing.assert_close(found, x.double() @ x.double().T / 3, rtol=1e-15, atol=1e-15)


def test_neither_model_nor_inputs_are_changed() -> None:
    class Counter(nn.Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x.mul_(2) + self.count

    program = load_program(TorchSource("c", Counter(), (torch.ones(3),)))
    buffer = program.exported.buffers
    before = [value.clone() for value in buffer()]
    x = torch.ones(3)
    (found,) = ProgramOracle(program).run({"x": x}).values()
    assert found.tolist() == [3.0] * 3
    assert torch.equal(x, torch.ones(3))
    assert all(torch.equal(a, b) for a, b in zip(before, buffer(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_noise_is_of_the_size_of_pytorchs_own_error(dtype: torch.dtype) -> None:
    model, program, x = _program(dtype)
    oracle = ProgramOracle(program)
    (exact,) = oracle.run({"x": x}).values()
    error = float((model(x).detach().double() - exact).abs().max())
    draws = [next(iter(draw.values())) for draw in oracle.noisy({"x": x}, draws=4)]
    effects = [float((draw - exact).abs().max()) for draw in draws]
    assert all(error / 8 < effect < error * 8 for effect in effects)
    assert len(set(effects)) == 4


def test_noise_of_a_narrower_type_can_be_asked_for() -> None:
    _, program, x = _program(torch.float32)
    oracle = ProgramOracle(program)
    (exact,) = oracle.run({"x": x}).values()
    effects = [
        float((next(iter(draw.values())) - exact).abs().max())
        for dtype in (None, torch.bfloat16)
        for draw in oracle.noisy({"x": x}, draws=1, narrow_to=dtype)
    ]
    assert effects[1] > 1e4 * effects[0]


def test_equal_seeds_draw_equal_noise() -> None:
    _, program, x = _program(torch.float32)
    oracle = ProgramOracle(program)
    first, second = (next(iter(oracle.noisy({"x": x}, draws=1))) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_weights_of_linear_layers_are_widened_block_by_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(24, 97), nn.Linear(97, 59)).eval()
    x = torch.randn(3, 24)
    program = load_program(TorchSource("model", model, (x,)))
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 512)
    with _Largest() as largest:
        (found,) = ProgramOracle(program).run({"input": x}).values()
    assert largest.elements <= 512
    torch.testing.assert_close(found, copy.deepcopy(model).double()(x.double()), rtol=1e-13, atol=0)


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Elements of the largest tensor that is seen, below the oracle's own mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result
