"""Channels of several tensors, one of each in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, Operator, TensorType
from mrt.symbol.operators.transform import Concat


@dataclass(frozen=True)
class Interleave(Operator):
    """The first channels of all inputs, then the second ones, and so on; all are of one type.

    The backend makes it from a graph's reshapes (`InterleaveChannels`).
    """

    op = "interleave"

    def infer(self, *data: TensorType) -> TensorType:
        shape = data[0].shape
        return data[0].with_shape((shape[0], len(data) * shape[1], *shape[2:]))

    def evaluate(self, *data: Array) -> Array:
        shape = data[0].shape
        return np.stack(data, axis=2).reshape(shape[0], len(data) * shape[1], *shape[2:])

    def bounds(self, *data: Interval) -> Interval:
        joined = Concat(dim=1).bounds(*data)
        if joined.lo.shape[1] == 1:
            return joined
        order = np.arange(joined.shape[1]).reshape(len(data), -1).T.ravel()
        return joined.map(lambda bound: bound[:, order])
