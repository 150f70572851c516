"""The error that rounding is expected to make in the outputs of a layer, for factors of the channels that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.calibration import Calibration, Channels, Range
from mrt.errors import QuantizationError
from mrt.quantization.constant_grids import fold_constants
from mrt.quantization.equalization.factor_sets import Reader
from mrt.quantization.equalization.layers import input_groups, rows_of
from mrt.quantization.options import ActivationConfig, QuantizationConfig, WeightConfig
from mrt.quantization.plan.own_quantizers import own_target, quantizer_options
from mrt.quantization.plan.ranges import calibrated_ranges, never_negative_tensors
from mrt.quantization.plan.trained import fixed_targets
from mrt.quantization.tensor_plan import QuantizerOptions
from mrt.symbol import Array, Graph, Symbol

WEIGHT_SHARE = 0.25
"""What is left of the error of weights by a rounding that weighs it, compared with the nearest integers."""
BLOCK = 2**22
"""Weights that are looked at together."""


@dataclass(frozen=True, eq=False)
class Quantizers:
    """What is asked of the quantizers of a prepared float graph, and which of its tensors are never negative."""

    graph: Graph
    config: QuantizationConfig
    observed: Calibration
    options: dict[str, QuantizerOptions]
    never_negative: frozenset[str]
    fixed: frozenset[str]

    @classmethod
    def of(cls, graph: Graph, config: QuantizationConfig, observed: Calibration) -> Quantizers:
        graph, _ = fold_constants(graph)
        fixed = fixed_targets(graph, config.inputs)
        ranges = calibrated_ranges(graph, observed.ranges, config, fixed)
        options = quantizer_options(graph, ranges, config, fixed)
        return cls(graph, config, observed, options, never_negative_tensors(graph, ranges), frozenset(fixed))

    def has_groups(self, tensor: Symbol) -> bool:
        """Whether the channels of a tensor have scales of their own."""
        options = self.options[tensor.name]
        return isinstance(options, ActivationConfig) and options.channel_step is not None

    def is_affine(self, tensor: Symbol) -> bool:
        """Whether a tensor has, or may have, a quantizer that covers either side as far as it goes."""
        options = self.options[tensor.name]
        return isinstance(options, ActivationConfig) and options.quantizer != "symmetric"

    def step(self, tensor: Symbol, lo: float, hi: float) -> float:
        """The step of a tensor's quantizer, should the tensor have that range."""
        symbol, options = self.graph.by_name[tensor.name], self.options[tensor.name]
        return own_target(self.graph, symbol, options, Range(lo, hi), tensor.name in self.never_negative).scale


def expected_errors(
    reader: Reader, ends: tuple[Array, Array], factors: Sequence[Array], quantizers: Quantizers
) -> Array:
    """The mean squared error of a layer's outputs over their mean square, (len(factors),) in float64.

    ends: the least and the greatest value of each channel of its data. factors: for each way to scale, those of each
    channel, f_c; x_c becomes x_c / f_c and W_oc becomes W_oc f_c. With x uncorrelated with what rounding adds, which is
    uniform within a step:

        step^2 / 12 * sum over c of f_c^2 |W_c|^2                                          by the rounding of x
        share * sum over o of step_o^2 / 12 * taps * sum over c of E[x_c^2] / f_c^2        by that of W

    over sum over c of |W_c|^2 E[x_c^2]. step: of the quantizer of x once it is scaled; step_o: of output channel o,
    from its largest scaled weight; a channel of a layer with groups is summed with those of its group. What rounds the
    layer that makes x stays, since each of its output channels has a scale.
    """
    rows = rows_of(reader.layer, quantizers.graph.parameters[reader.layer.inputs[1].name])
    scaled = np.stack([reader.columns(each) for each in factors])
    squares = reader.columns(_squares(reader, quantizers.observed))
    groups = input_groups(reader.layer)
    apart = scaled.reshape(len(factors), groups, -1)
    energy, steps = _of_rows(rows, apart, quantizers.config.weight_of(reader.layer.name))
    behind = (squares.reshape(groups, -1) / np.square(apart)).sum(axis=2)
    of_weight = WEIGHT_SHARE / 12 * rows.shape[2] * (steps * behind).sum(axis=1)
    lo, hi = ends
    step = np.array([quantizers.step(reader.data, (lo / each).min(), (hi / each).max()) for each in factors])
    of_data = np.square(step) / 12 * (np.square(apart) * energy).sum(axis=(1, 2))
    signal = float((energy.reshape(-1) * squares).sum())
    errors: Array = (of_data + of_weight) / signal if signal > 0 else np.zeros(len(factors))
    return errors


def _of_rows(rows: Array, factors: Array, config: WeightConfig) -> tuple[Array, Array]:
    """The sum of the squares of a weight's columns, (groups, I), and that of its steps, (ways to scale, groups).

    rows: (O, I, taps). factors: (ways to scale, groups, I). config: of the weight's quantizer.
    """
    ways, groups, width = factors.shape
    energy, steps = np.zeros((groups, width)), np.zeros((ways, len(rows)))
    each = max(BLOCK * len(rows) // max(rows.size, 1), 1)
    for first in range(0, len(rows), each):
        part = rows[first : first + each]
        group = np.arange(first, first + len(part)) * groups // len(rows)
        found, starts = np.unique(group, return_index=True)
        energy[found] += np.add.reduceat(np.square(part, dtype=np.float64).sum(axis=2), starts, axis=0)
        hi, lo = part.max(axis=2), part.min(axis=2)
        for way in range(ways):
            by = factors[way, group]
            highest, lowest = (hi * by).max(axis=1), (lo * by).min(axis=1)
            if config.quantizer == "affine":
                step = (np.maximum(highest, 0) - np.minimum(lowest, 0)) / (2**config.bits - 1)
            else:
                step = np.maximum(highest, -lowest) / (2 ** (config.bits - 1) - 1)
            steps[way, first : first + len(part)] = step
    if config.scales == "layer":
        steps[:] = steps.max(axis=1, keepdims=True)
    return energy, np.square(steps).reshape(ways, groups, -1).sum(axis=2)


def _squares(reader: Reader, observed: Calibration) -> Array:
    tensor, axis = reader.data, reader.axis
    found = observed.squares.get(Channels(tensor.name, axis))
    if found is None:
        raise QuantizationError(
            f"{tensor.name} ({tensor.op}): the mean square of its channels along axis {axis} is missing; calibrate "
            f"with it first"
        )
    return np.asarray(found, np.float64)
