"""A symbol of the integer graph with the real values that its integers stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.quantizer import ChannelGroups
from mrt.symbol import Array, Symbol


@dataclass(frozen=True, eq=False)
class Quantized:
    """real = scale * (q - zero_points).

    scale: float64, zero_points: int64, both of the symbol's rank, each axis 1 or full: one value, or one a channel.
    groups: the channel groups that give them, where a channel-wise quantizer does; an accumulator that has one scale
    per output channel has none, and zero point 0.
    """

    symbol: Symbol
    scale: Array
    zero_points: Array
    groups: ChannelGroups | None = None

    @classmethod
    def of(
        cls, symbol: Symbol, scale: float | Array, zero_point: int | Array = 0, groups: ChannelGroups | None = None
    ) -> Quantized:
        rank = symbol.type.rank
        return cls(symbol, _ranked(scale, np.float64, rank), _ranked(zero_point, np.int64, rank), groups)

    @property
    def is_uniform(self) -> bool:
        """Whether one scale and one zero point serve the whole tensor."""
        return _is_one(self.scale) and _is_one(self.zero_points)

    @property
    def uniform(self) -> Quantized:
        """The same with its one scale and zero point, each held once; QuantizationError where there are several."""
        if not _is_one(self.scale):
            raise QuantizationError(f"{self.symbol.name}: one scale is needed, its channels have several")
        return Quantized.of(self.symbol, self.scale.flat[0], self.zero_point)

    @property
    def is_centred(self) -> bool:
        """Whether the integer of the real zero is 0 in every channel."""
        return not self.zero_points.any()

    @property
    def step(self) -> float:
        """The one scale of a uniform tensor, or the common scale of channel groups."""
        first = float(self.scale.reshape(-1)[0])
        return first if self.groups is None else first / self.groups.factors[0]

    @property
    def zero_point(self) -> int:
        """The one zero point of a uniform tensor."""
        if not _is_one(self.zero_points):
            raise QuantizationError(f"{self.symbol.name}: one zero point is needed, its channels have several")
        return int(self.zero_points.reshape(-1)[0])


def _is_one(values: Array) -> bool:
    return bool((values == values.flat[0]).all())


def _ranked(value: float | Array, dtype: type, rank: int) -> Array:
    array: Array = np.asarray(value, dtype)
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
