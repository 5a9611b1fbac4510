"""Models that draw random numbers are found, and those that could but do not are let through."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention

from qkexport.oracle.randomness import random_node, random_operator

X = torch.randn(2, 3, 5, 8)


class Dropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, 0.3, self.training) + x


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x, dropout_p=0.2 if self.training else 0.0)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


def _found(module: nn.Module) -> str:
    return random_operator(torch.export.export(module, (X,), strict=False))


@pytest.mark.parametrize(
    ("module", "operator"), [(Dropout(), "dropout"), (Attention(), "scaled_dot_product_attention")]
)
def test_dropout_counts_where_it_is_switched_on(module: nn.Module, operator: str) -> None:
    assert _found(module.eval()) == ""
    assert operator in _found(module.train())


def test_noise_is_found_whatever_the_mode() -> None:
    assert "randn_like" in _found(Noise().eval())


def _model(node: str, more: str = "") -> ir.Model:
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
        g (float[2] x) => (float[2] y) <{more}> {{ y = {node} }}"""
    return ir.from_onnx_text(text)


def test_random_nodes_of_a_graph_are_found() -> None:
    assert random_node(_model("Neg (x)")) == ""
    assert "RandomNormalLike" in random_node(_model("RandomNormalLike (x)"))
    assert random_node(_model("Dropout (x)")) == ""
    ratio = "float r = {0.3}, bool t = {%d}"
    assert random_node(_model("Dropout (x, r, t)", ratio % 0)) == ""
    assert "Dropout" in random_node(_model("Dropout (x, r, t)", ratio % 1))
