"""Complex programs written with real numbers: the same values, no complex tensor, or a refusal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from qkexport.errors import UnsupportedModelError
from qkexport.real_arithmetic import in_real_arithmetic
from qkexport.trace import exporter_noise_logged

Function = Callable[[torch.Tensor], torch.Tensor]


class _Module(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class _Stored(nn.Module):
    """Angles kept as a complex buffer, as precomputed frequencies are."""

    def __init__(self, *, persistent: bool) -> None:
        super().__init__()
        turns = torch.polar(torch.ones(9, 3), torch.rand(9, 3))
        self.turns: torch.Tensor
        self.register_buffer("turns", turns, persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(_pairs(x) * self.turns[: x.shape[1]]).flatten(-2)


def _pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


def _angles(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.5, 0.25])


def _real(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z).flatten(-2)


_FUNCTIONS: dict[str, Function] = {
    "polar": lambda x: _real(_pairs(x) * torch.polar(torch.ones(3), x[0, 0, :3])),
    "complex exponential": lambda x: _real(_pairs(x) * torch.exp(1j * _angles(x))),
    "complex of two": lambda x: _real(_pairs(x) * torch.complex(x[..., :3], x[..., 3:])),
    "conjugate": lambda x: _real(_pairs(x) * _pairs(x).conj()),
    "real factor and divisor": lambda x: _real(_pairs(x) * x[..., :3] / 2.5),
    "sums": lambda x: _real(_pairs(x) + _pairs(x) - 3 * _pairs(x)),
    "parts and length": lambda x: _pairs(x).real - 2 * _pairs(x).imag + _pairs(x).abs(),
    "sums with real numbers": lambda x: _real(x[..., :3] - _pairs(x) + 2.0),
    "moved": lambda x: _real(_pairs(x).transpose(0, 1)[:, :1, None].repeat(1, 2, 1, 1)),
    "split and joined": lambda x: _real(torch.cat(torch.split(_pairs(x), [1, 2], -1)[::-1], -1)),
    "gathered": lambda x: _real(_pairs(x)[:, torch.tensor([1, 0, 1])]),
    "joined with ones": lambda x: _real(torch.cat([_pairs(x), torch.ones(2, 1, 3) + 0j], 1)),
    "cast": lambda x: (_pairs(x).to(torch.complex128) * 2).real.float(),
}


def _rewritten(module: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    tokens = torch.export.Dim("tokens", min=2, max=9)
    with exporter_noise_logged(), torch.no_grad():
        program = torch.export.export(module, (x,), dynamic_shapes=({1: tokens},))
        return in_real_arithmetic(program)


def _check(module: nn.Module) -> None:
    program = _rewritten(module, torch.randn(2, 5, 6))
    values = [node.meta.get("val") for node in program.graph.nodes]
    assert not any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)
    for length in (5, 4):
        x = torch.randn(2, length, 6)
        with exporter_noise_logged():
            actual = program.module()(x)
        torch.testing.assert_close(actual, module(x))


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_real_arithmetic_computes_the_same(name: str) -> None:
    _check(_Module(_FUNCTIONS[name]))


@pytest.mark.parametrize("persistent", [True, False])
def test_complex_buffers_are_stored_as_real_ones(persistent: bool) -> None:
    _check(_Stored(persistent=persistent))


def test_the_callers_program_keeps_its_complex_buffers() -> None:
    module = _Stored(persistent=True)
    _rewritten(module, torch.randn(2, 5, 6))
    assert module.turns.is_complex()


def test_real_programs_are_returned_as_they_are() -> None:
    with exporter_noise_logged():
        program = torch.export.export(_Module(torch.sin), (torch.ones(2),))
    assert in_real_arithmetic(program) is program


@pytest.mark.parametrize(
    ("function", "x", "text"),
    [
        (_pairs, torch.randn(2, 5, 6), "must return real tensors, got a complex output"),
        (torch.view_as_real, torch.randn(2, 5) + 0j, "take real tensors, got complex input x"),
        (lambda x: _real(1 / _pairs(x)), torch.randn(2, 5, 6), "real form, got aten.reciprocal"),
        (lambda x: _real(x[..., :3] / _pairs(x)), torch.randn(2, 5, 6), "a complex divisor"),
    ],
)
def test_what_has_no_real_form_is_refused(function: Function, x: torch.Tensor, text: str) -> None:
    with pytest.raises(UnsupportedModelError, match=text):
        _rewritten(_Module(function), x)
