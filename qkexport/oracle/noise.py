"""Rounding noise: what rounding every intermediate value once does to the outputs."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass
class RoundingNoise:
    """Random relative errors of up to half a unit in the last place of the type a value has.

    The error of a sum of K rounded terms is the random walk that any order of summation makes, so
    the noise carries both what the type rounds and what long reductions add.

    Attributes:
        seed: Of the generator; equal seeds perturb equally.
        narrow_to: Type that values of the model's own floating type are rounded to, when a
            candidate stores them narrower than the model does; None keeps the model's.
    """

    seed: int
    narrow_to: torch.dtype | None = None

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def perturbed(self, x: torch.Tensor, stored: torch.dtype) -> torch.Tensor:
        """X with noise.

        Args:
            x: Values in float64.
            stored: Type the model keeps them in; float64 and integers get no noise.
        """
        dtype = self.narrow_to if self.narrow_to and stored == torch.float32 else stored
        if not dtype.is_floating_point or dtype == torch.float64:
            return x
        half_ulp = torch.finfo(dtype).eps / 2
        draw = torch.rand(x.shape, generator=self._generator, dtype=torch.float32)
        return x * (1 + half_ulp * (2 * draw.double() - 1))
