"""Each layer's share of the error at the outputs, from what each rounding costs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mrt.quantization.simulation.sensitivity import WEIGHT, Loss, Sensitivity
from mrt.quantization.simulation.simulation import mean_error
from mrt.report.facts import ErrorTotals, Shares
from mrt.report.layers import FloatLayer
from mrt.report.measure.numbers import known, rounded


def shares_of(layers: Sequence[FloatLayer], owner: Mapping[str, FloatLayer], found: Sensitivity) -> dict[int, Shares]:
    """By the place of a layer; of a layer that nothing is rounded for, zeros. Empty where there is no error at all."""
    whole = mean_error(found.whole)
    if not whole:
        return {}
    losses: dict[int, list[Loss]] = {layer.place: [] for layer in layers}
    for loss in found.losses:
        if loss.name in owner:
            losses[owner[loss.name].place].append(loss)
    return {place: _shares(own, found, whole) for place, own in losses.items()}


def _shares(own: Sequence[Loss], found: Sensitivity, whole: float) -> Shares:
    weights = [mean_error(loss.alone) for loss in own if loss.what == WEIGHT]
    output = sum(mean_error(loss.alone) for loss in own if loss.what != WEIGHT)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.sum([loss.alone for loss in own], axis=0) / found.whole if own else np.zeros(len(found.outputs))
    return Shares(
        output=rounded(output / whole),
        weights=rounded(sum(weights) / whole) if weights else None,
        alone=rounded((output + sum(weights)) / whole),
        by_output=[known(float(error)) for error in each],
    )


def error_totals(found: Sensitivity, shares: Mapping[int, Shares], source: str) -> ErrorTotals:
    """What the shares are of."""
    return ErrorTotals(
        samples=found.samples,
        outputs=list(found.outputs),
        whole=[known(float(error), 6) for error in found.whole],
        alone=rounded(sum(each.alone for each in shares.values())),
        source=source,
    )
