"""Operators that treat every element alike, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812

from qkexport.interpret.call import OPERATORS, Call, operator

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_UNARY: Final[dict[str, Unary]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}

_BINARY: Final[dict[str, Binary]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}

_VARIADIC: Final[dict[str, Binary]] = {
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Sum": torch.add,
}


def _unary(function: Unary) -> Callable[[Call, torch.Tensor], torch.Tensor]:
    return lambda _, x: function(x)


def _binary(function: Binary) -> Callable[[Call, torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda _, x, y: function(x, y)


def _variadic(function: Binary) -> Callable[..., torch.Tensor]:
    return lambda _, *xs: reduce(function, xs)


OPERATORS.update({name: _unary(function) for name, function in _UNARY.items()})
OPERATORS.update({name: _binary(function) for name, function in _BINARY.items()})
OPERATORS.update({name: _variadic(function) for name, function in _VARIADIC.items()})


@operator("Div")
def divide(_: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Integers truncate towards zero."""
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@operator("Mod")
def modulo(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`fmod` 1 takes the dividend's sign, 0 the divisor's."""
    return torch.fmod(x, y) if call.get("fmod", 0) else torch.remainder(x, y)


@operator("Pow")
def power(_: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The base's type wins."""
    return torch.pow(x, y.to(x.dtype) if x.is_floating_point() else y).to(x.dtype)


@operator("Mean")
def mean_of_inputs(_: Call, *xs: torch.Tensor) -> torch.Tensor:
    return reduce(torch.add, xs) / len(xs)


@operator("Clip")
def clip(
    call: Call,
    x: torch.Tensor,
    low: torch.Tensor | None = None,
    high: torch.Tensor | None = None,
) -> torch.Tensor:
    """NaN stays NaN; bounds were attributes before opset 11."""
    if call.opset < 11:
        return torch.clamp(x, call.get("min"), call.get("max"))
    if low is not None:
        x = torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


@operator("Where")
def where(_: Call, condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, x, y)


@operator("IsInf")
def is_infinite(call: Call, x: torch.Tensor) -> torch.Tensor:
    wanted = torch.zeros_like(x, dtype=torch.bool)
    if call.get("detect_positive", 1):
        wanted |= torch.isposinf(x)
    if call.get("detect_negative", 1):
        wanted |= torch.isneginf(x)
    return wanted


@operator("Gelu")
def gelu(call: Call, x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate=call.get("approximate", "none"))


@operator("Swish")
def swish(call: Call, x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(float(call.get("alpha", 1.0)) * x)


@operator("Elu")
def elu(call: Call, x: torch.Tensor) -> torch.Tensor:
    return F.elu(x, call.get("alpha", 1.0))


@operator("LeakyRelu")
def leaky_relu(call: Call, x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(x, call.get("alpha", 0.01))


@operator("PRelu")
def prelu(_: Call, x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, slope * x, x)


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: torch.Tensor) -> torch.Tensor:
    return (float(call.get("alpha", 0.2)) * x + float(call.get("beta", 0.5))).clamp(0, 1)


@operator("Dropout")
def dropout(call: Call, x: torch.Tensor, *_: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """As at inference: nothing is dropped."""
    return (x, torch.ones_like(x, dtype=torch.bool))[: call.num_outputs]


@operator("Cast")
def cast(call: Call, x: torch.Tensor) -> torch.Tensor:
    return x.to(call.dtype(call.get("to")))


@operator("CastLike")
def cast_like(_: Call, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return x.to(like.dtype)


@operator("BitShift")
def bit_shift(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    shift = (
        torch.bitwise_left_shift if call.get("direction") == "LEFT" else (torch.bitwise_right_shift)
    )
    return shift(x, y)
