"""Second moments of what layers read and give: exact sums, so that neither order nor cores can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mrt.symbol import Array


@dataclass(frozen=True, eq=False)
class LayerMoments:
    """Sums over `count` positions of x, what an output is summed over, and y, the layer's float output.

    The inputs of each of the layer's groups come in `splits` equal runs, products of different runs being left out: a
    part is one run, there are groups * splits parts, and K inputs in each.

    xx: (parts, K, K), x: (parts, K), of the products of x and of x, in steps of `x_steps` (parts, K). y: (O,), xy:
    (groups, K, O / groups) in steps of `y_step` too; xy None where nothing asks for it or there are several runs. All
    are integers in float64, of less than 2^53, and so exact.
    """

    count: int
    x_steps: Array
    y_step: float
    xx: Array
    x: Array
    y: Array
    xy: Array | None = None
    splits: int = 1

    def merge(self, other: LayerMoments) -> LayerMoments:
        """The moments of the positions of both, which must have the same steps."""
        xy = None if self.xy is None or other.xy is None else self.xy + other.xy
        sums = (self.xx + other.xx, self.x + other.x, self.y + other.y, xy)
        return LayerMoments(self.count + other.count, self.x_steps, self.y_step, *sums, self.splits)

    @property
    def groups(self) -> int:
        """Of the layer."""
        return len(self.x) // self.splits

    def by_part(self, rows: Array) -> Array:
        """Values for each weight, (O, inputs of an output), as (parts, K, O / groups)."""
        apart = rows.reshape(self.groups, len(self.y) // self.groups, self.splits, -1).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(apart.reshape(len(self.x), -1, apart.shape[3]))

    def by_output(self, parts: Array) -> Array:
        """What `by_part` gives, as its rows (O, inputs of an output)."""
        apart = parts.reshape(self.groups, self.splits, *parts.shape[1:]).transpose(0, 3, 1, 2)
        return np.ascontiguousarray(apart.reshape(len(self.y), -1))

    @property
    def x_mean(self) -> Array:
        """The real mean of x, (parts, K)."""
        mean: Array = self.x_steps * self.x / self.count
        return mean

    @property
    def y_mean(self) -> Array:
        """The real mean of y, (O,)."""
        mean: Array = self.y_step * self.y / self.count
        return mean

    @property
    def variance(self) -> Array:
        """Of x, real, (parts, K)."""
        squares = np.diagonal(self.xx, axis1=1, axis2=2) / self.count - (self.x / self.count) ** 2
        variance: Array = np.maximum(squares, 0.0) * self.x_steps**2
        return variance

    @property
    def covariance(self) -> Array:
        """Of x with itself, real, (parts, K, K)."""
        mean = self.x / self.count
        centred = self.xx / self.count - mean[:, :, None] * mean[:, None]
        centred *= self.x_steps[:, :, None]
        centred *= self.x_steps[:, None]
        return centred

    @property
    def cross_covariance(self) -> Array | None:
        """Of x with y, real, (groups, K, O / groups)."""
        if self.xy is None:
            return None
        mean, y = self.x / self.count, self.y.reshape(len(self.x), 1, -1) / self.count
        return (self.xy / self.count - mean[:, :, None] * y) * self.x_steps[:, :, None] * self.y_step


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of layers, by name; and why those are left alone that have none."""

    layers: Mapping[str, LayerMoments]
    left_alone: Mapping[str, str] = field(default_factory=dict)
