"""Weights are rounded to the nearest integers."""

from __future__ import annotations

import numpy as np

from mrt.calibration import Calibration
from mrt.quantization.algorithms.algorithm import Rounded, Rounding, UnroundedWeight, algorithm
from mrt.quantization.quantizer import round_half_away
from mrt.symbol import Array, Symbol
from mrt.symbol.types import narrowest_dtype


@algorithm("nearest")
class NearestRounding(Rounding):
    """Each weight to the nearest integer, halves away from zero."""

    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        return nearest_integers


def nearest_integers(weight: UnroundedWeight) -> Array:
    """clip(round(values / steps) + zero_points, lo, hi), halves away from zero before the zero point is added."""
    integers = np.empty(weight.values.shape, narrowest_dtype(weight.lo, weight.hi))
    # No more than so many steps round to no more than so many: what is clipped first fits the narrow dtype.
    dtype = np.int64 if weight.zero_points.any() else integers.dtype.type
    done = 0
    for block in weight.blocks():
        exact = block.values / block.steps
        zero = block.zero_points if dtype is np.int64 else 0
        np.clip(exact, weight.lo - zero, weight.hi - zero, out=exact)
        integers[done : done + len(exact)] = round_half_away(exact, dtype) + zero
        done += len(exact)
    return integers
