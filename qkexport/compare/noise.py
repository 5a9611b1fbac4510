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

    Only these are kept, not the draws, and no more is drawn than is asked for.

    Args:
        draws: Evaluates the oracle under noise; called when an effect is first asked for.
    """

    def __init__(self, draws: NoiseDraws) -> None:
        self._draws = draws
        self._iterator: Iterator[Tensors] = iter(())
        self._count = 0
        self._squares: dict[tuple[str, int | None], torch.Tensor] = {}

    def rows(
        self,
        names: Sequence[str],
        oracle: Tensors,
        num_heads: Mapping[str, int],
        draws: int | None = None,
    ) -> dict[str, torch.Tensor]:
        """The effect on each row of each named output, `[num_rows]` float64.

        Args:
            names: Outputs of a floating type.
            oracle: The exact outputs.
            num_heads: Outputs whose last axis holds that many heads side by side.
            draws: How many are enough; None takes all there are.
        """
        keys = {name: (name, num_heads.get(name)) for name in names}
        if not all(key in self._squares for key in keys.values()):
            self._iterator, self._count, self._squares = self._draws(), 0, {}
        while draws is None or self._count < draws:
            drawn = next(self._iterator, None)
            if drawn is None:
                break
            self._add(drawn, oracle, num_heads)
        return {name: (self._squares[key] / self._count).sqrt() for name, key in keys.items()}

    def _add(self, drawn: Tensors, oracle: Tensors, num_heads: Mapping[str, int]) -> None:
        self._count += 1
        for name, exact in oracle.items():
            if not exact.is_floating_point() or not exact.numel():
                continue
            key = name, num_heads.get(name)
            effect = noise_rows(drawn[name], exact, key[1]).square()
            self._squares[key] = self._squares[key] + effect if key in self._squares else effect
