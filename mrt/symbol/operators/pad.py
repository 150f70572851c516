"""Pad: a border around a tensor."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._intervals import output_shape
from mrt.symbol.types import TensorType


@operator("Pad", "pad")
class Pad(Operator):
    """A border of pad_width[2 a] elements before and pad_width[2 a + 1] after axis a.

    mode "constant" fills it with constant_value, "edge" repeats the outermost element, "reflect" mirrors without
    repeating it. Keeps dtype and scale (the constant of an integer Pad is in steps of that scale).
    """

    pad_width: tuple[int, ...]
    mode: str = "constant"
    constant_value: float = 0.0

    keeps_scale = True
    attains_bounds = True

    @property
    def widths(self) -> list[tuple[int, int]]:
        """(before, after) of every axis."""
        return list(zip(self.pad_width[::2], self.pad_width[1::2], strict=True))

    @property
    def is_of_zeros(self) -> bool:
        return self.mode == "constant" and self.constant_value == 0

    def infer(self, x: TensorType) -> TensorType:
        if len(self.pad_width) != 2 * x.rank or min(self.pad_width, default=0) < 0:
            raise GraphError(f"pad_width is {self.pad_width}; {2 * x.rank} values of at least 0 are needed for {x}")
        if self.mode not in ("constant", "edge", "reflect"):
            raise GraphError(f"mode is {self.mode}; constant, edge or reflect is needed")
        for width, n in zip(self.widths, x.shape, strict=True):
            needed = {"constant": 0, "edge": 1, "reflect": 1 + max(width)}[self.mode]
            if any(width) and n < needed:
                raise GraphError(f"pad_width {self.pad_width} in mode {self.mode} needs more elements than {x} has")
        if x.is_integer and self.mode == "constant":
            lo, hi = (0, 1) if x.dtype == "bool" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
            if not (float(self.constant_value).is_integer() and lo <= self.constant_value <= hi):
                raise GraphError(f"constant_value {self.constant_value} is no {x.dtype}; cast the data first")
        return x.with_shape(tuple(n + sum(width) for n, width in zip(x.shape, self.widths, strict=True)))

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        return self._pad(x, self.widths)

    def bounds(self, x: Interval) -> Interval:
        shape = output_shape(self, x)
        varies = [x.lo.shape[a] > 1 or x.hi.shape[a] > 1 for a in range(len(shape))]
        hidden = any(any(width) and not v for width, v in zip(self.widths, varies, strict=True))
        if self.mode == "constant" and hidden:
            border = Interval.of(self._constant(x.lo), self._constant(x.lo), x.shape)
            x = x.hull(border)
        # The axes along which the bounds vary are padded; along the others one bound still stands for all.
        widths = [width if v else (0, 0) for width, v in zip(self.widths, varies, strict=True)]
        full = [n if v else 1 for n, v in zip(x.shape, varies, strict=True)]
        lo, hi = (self._pad(np.broadcast_to(bound, full), widths) for bound in (x.lo, x.hi))
        return Interval(lo, hi, shape)

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return None if any(self.widths[axis]) else axis

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,) if self.mode != "constant" or self.constant_value == 0 else ()

    def batch_obstacle(self, x: TensorType) -> str:
        return f"pad_width {self.pad_width} pads axis 0" if any(self.pad_width[:2]) else ""

    def _pad(self, x: Array, widths: list[tuple[int, int]]) -> Array:
        if not widths:
            return x
        if self.mode == "constant":
            return np.pad(x, widths, constant_values=self._constant(x))
        return np.pad(x, widths, mode="edge" if self.mode == "edge" else "reflect")

    def _constant(self, x: Array) -> float:
        return float(self.constant_value) if x.dtype.kind == "f" else int(self.constant_value)
