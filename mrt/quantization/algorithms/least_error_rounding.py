"""Weights are rounded to the nearest integers, at scales of least squared error."""

from __future__ import annotations

import numpy as np

from mrt.calibration import Calibration
from mrt.quantization.algorithms.algorithm import AtShares, Covering, Rounded, Rounding, UnroundedWeight, algorithm
from mrt.quantization.algorithms.nearest_rounding import nearest_integers
from mrt.quantization.options import WeightConfig
from mrt.symbol import Array, Symbol
from mrt.workers import in_order

SHARES = np.linspace(1.0, 0.4, 25)
FEW, AT_ONCE = 2**16, 2**25
"""From so many weights on several cores try a share each, which pays then; and how many weights are rounded at once at
most, since each takes some 24 bytes meanwhile."""


@algorithm("mse")
class LeastErrorRounding(Rounding):
    """Each weight to the nearest integer, at the share of the largest weight with the least squared error.

    It needs no data: of 25 shares, from 0.4 to 1, each output channel takes its best.
    """

    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        return nearest_integers

    def covering(self, layer: Symbol, observed: Calibration, options: WeightConfig) -> Covering:
        return least_error_shares(options)


def least_error_shares(options: WeightConfig) -> Covering:
    """Finds the shares at which the sum of the squared errors of each output channel's weights is least."""

    def shares(at: AtShares) -> Array:
        values = at(np.ones(1)).values
        outputs, at_once = len(values), 1 if values.size < FEW else max(AT_ONCE // values.size, 1)
        errors = np.stack(list(in_order(lambda share: _error(at(np.full(outputs, share))), SHARES.tolist(), at_once)))
        if options.scales == "layer":
            return np.full(outputs, SHARES[errors.sum(axis=1).argmin()])
        found: Array = SHARES[errors.argmin(axis=0)]
        return found

    return shares


def _error(weight: UnroundedWeight) -> Array:
    """(O,): the sum of squares of what rounding to the nearest changes."""
    real = (nearest_integers(weight) - weight.zero_points) * weight.steps
    error: Array = np.square(real - weight.values).reshape(len(real), -1).sum(axis=1)
    return error
