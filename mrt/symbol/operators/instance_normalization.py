"""Normalisations of each sample by its own moments or length: InstanceNorm and L2Normalization, float only."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import unknown
from mrt.symbol.types import TensorType

L2_MODES = ("instance", "channel", "spatial")


@operator("InstanceNorm")
class InstanceNorm(Operator):
    """gamma (x - mean) / sqrt(variance + eps) + beta for data (N, C, ...), moments over the axes after the channels.

    gamma and beta (C,). Float only.
    """

    family = "norm"

    eps: float = 1e-3

    input_names = ("data", "gamma", "beta")

    @property
    def affine_axis(self) -> int:
        return 1

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        require_float(x)
        if x.rank < 3 or 0 in x.shape[2:]:
            raise GraphError(f"data is {x}; rank 3 or more and elements to normalise over are needed")
        for name, parameter in (("gamma", gamma), ("beta", beta)):
            require_float(parameter)
            if parameter.shape != (x.shape[1],):
                raise GraphError(f"{name} is {parameter}; shape ({x.shape[1]},) is needed")
        return x

    def evaluate(self, x: Array, gamma: Array, beta: Array) -> Array:
        x = x.astype(np.float64)
        axes = tuple(range(2, x.ndim))
        centred = x - x.mean(axis=axes, keepdims=True)
        variance = np.square(centred).mean(axis=axes, keepdims=True)
        scale, offset = (p.astype(np.float64).reshape(-1, *(1,) * len(axes)) for p in (gamma, beta))
        result: Array = centred / np.sqrt(variance + self.eps) * scale + offset
        return result

    def bounds(self, x: Interval, gamma: Interval, beta: Interval) -> Interval:
        return unknown(x.shape)


@operator("L2Normalization")
class L2Normalization(Operator):
    """x / sqrt(sum of x^2 + eps), the sum over all axes but the first (mode instance), over axis 1 (channel) or over
    the axes after it (spatial). Float only.
    """

    family = "norm"

    eps: float = 1e-10
    mode: str = "instance"

    def axes(self, rank: int) -> tuple[int, ...]:
        """The axes that are summed over; they are neighbours."""
        first, last = {"instance": (1, rank), "channel": (1, 2), "spatial": (2, rank)}[self.mode]
        return tuple(range(first, last))

    def infer(self, x: TensorType) -> TensorType:
        require_float(x)
        if self.mode not in L2_MODES:
            raise GraphError(f"mode is {self.mode}; one of {L2_MODES} is needed")
        least = 3 if self.mode == "spatial" else 2
        if x.rank < least:
            raise GraphError(f"data is {x}; rank {least} or more is needed for mode {self.mode}")
        return x

    def evaluate(self, x: Array) -> Array:
        x = x.astype(np.float64)
        squares = np.square(x).sum(axis=self.axes(x.ndim), keepdims=True)
        with np.errstate(all="ignore"):
            result: Array = x / np.sqrt(squares + self.eps)
        return result

    def bounds(self, x: Interval) -> Interval:
        return Interval.of(-1.0, 1.0, x.shape)
