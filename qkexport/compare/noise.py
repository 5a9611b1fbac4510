"""How rounding noise moves the rows of each output: measured once, used for every candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from qkexport.compare.heads import noise_rows

Tensors = Mapping[str, torch.Tensor]
# Each item is one evaluation of the oracle under rounding noise.
NoiseDraws = Callable[[], Iterator[Tensors]]


class NoiseEffects:
    """Root mean squares, over the draws, of the largest effect on each row.

    Only these are kept, not the draws.

    Args:
        draws: Evaluates the oracle under noise; called when an effect is first asked for.
    """

    def __init__(self, draws: NoiseDraws) -> None:
        self._draws = draws
        self._known: dict[tuple[str, int | None], torch.Tensor] = {}

    def rows(
        self, names: Sequence[str], oracle: Tensors, num_heads: Mapping[str, int]
    ) -> dict[str, torch.Tensor]:
        """The effect on each row of each named output, `[num_rows]` float64.

        Args:
            names: Outputs of a floating type.
            oracle: The exact outputs.
            num_heads: Outputs whose last axis holds that many heads side by side.
        """
        keys = {name: (name, num_heads.get(name)) for name in names}
        if not all(key in self._known for key in keys.values()):
            self._measure(oracle, num_heads)
        return {name: self._known[key] for name, key in keys.items()}

    def _measure(self, oracle: Tensors, num_heads: Mapping[str, int]) -> None:
        floats = [name for name, x in oracle.items() if x.is_floating_point() and x.numel()]
        squares: dict[str, torch.Tensor] = {}
        draws = 0
        for drawn in self._draws():
            draws += 1
            for name in floats:
                effect = noise_rows(drawn[name], oracle[name], num_heads.get(name)).square()
                squares[name] = squares[name] + effect if name in squares else effect
        for name, total in squares.items():
            self._known[name, num_heads.get(name)] = (total / draws).sqrt()
