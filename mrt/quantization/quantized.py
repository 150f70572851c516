"""A symbol of the integer graph with the real values that its integers stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Symbol


@dataclass(frozen=True, eq=False)
class Quantized:
    """real = scale * (q - zero_point).

    `scale` is float64, of the symbol's rank, each axis 1 or full: one value, or one a channel. Tensors with one scale a
    channel have zero point 0.
    """

    symbol: Symbol
    scale: Array
    zero_point: int = 0

    @classmethod
    def of(cls, symbol: Symbol, scale: float | Array, zero_point: int = 0) -> Quantized:
        array = np.asarray(scale, np.float64)
        return cls(symbol, array.reshape((1,) * (symbol.type.rank - array.ndim) + array.shape), zero_point)

    @property
    def is_uniform(self) -> bool:
        """Whether one scale serves the whole tensor."""
        return self.scale.size == 1

    @property
    def step(self) -> float:
        """The one scale of a uniform tensor."""
        return float(self.scale.reshape(-1)[0])
