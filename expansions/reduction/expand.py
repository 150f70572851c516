"""Choosing how a reduction becomes integers: the most bits of its weight, and the fewest slices, that fit 32 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from expansions.reduction.cuts import Cut, cuts, weight_ends
from expansions.reduction.emission import emit
from expansions.reduction.form import Form
from expansions.reduction.operands import Operands, Reach
from expansions.reduction.partial_sums import PartialSums
from expansions.trained_weight import trained_weight
from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.rounder import Asked, Rounder
from mrt.quantization.integer.weights import Accumulator, QuantizedWeight, with_correction_room
from mrt.quantization.options import WeightConfig
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol


def reduction_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    """The data in channel groups where it has them; the weight is a parameter."""
    return (Demand.CHANNELS, *(Demand.NARROW for _ in symbol.inputs[1:]))


def expand_reduction(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder, form: Form) -> Quantized:
    """The integers of Y / (sx sw[o]) = Y(Xq, Wq) - zw[o] window(Xq) - zx Y(1, Wq - zw), without its zero terms.

    Channel groups of the data or of the weight's input channels split the sum into slices of X and W along the input
    channels, one reduction each, merged by add_n:

        Y / (s sw[o]) = sum over the slices g of f[o, g] (Y(Xq_g, Wq_g) - zw[o, g] window(Xq_g)) - ...

    s is the common scale of the data and f[o, g] the product of the integer factors of X's and W's scales, so that the
    sum is exact and requantized once. Where it would exceed 32 bits every partial sum is rescaled to 2^shift times the
    scale before the merge. Source: Channel Split and Channel Merge of "MRT Generalized Quantization Math
    Formalization". An operator with groups of its own is sliced within each of them and merged by Concat; where every
    one reads channels of one scale, as a depthwise convolution does, that scale goes to its outputs and nothing is
    sliced.
    """
    if len(inputs.values) != 2:
        raise QuantizationError(f"{op.name} ({op.op}): separate its bias first (preparation does)")
    given = trained_weight(plan[op.inputs[1]].constant, op, form.rows, builder)
    data = inputs.quantized(0)
    operands = Operands(op, data, builder.bounds(data.symbol), form.rows(inputs.parameter(1)), form)
    choice = _Choice(operands, plan, builder.rounder)
    sums, notes = choice.of_most_bits() if given is None else choice.of_given(given)
    builder.notes.extend(f"{op.name} ({op.op}): {note}" for note in notes)
    weight = sums.weight  # alone: whoever keeps the function keeps nothing else of the expansion
    builder.dequantized_weight = lambda: form.weight(weight.real, form.groups)
    return emit(sums, builder)


@dataclass(frozen=True, eq=False)
class _Magnitudes:
    """From the centred integers of a weight to the largest |accumulators|, (O,), in steps of 2^shift.

    terms: how many partial sums are added. corrects: whether a correction of the bias may come on top.
    """

    reach: Reach
    shift: int
    terms: int
    corrects: bool

    @property
    def given(self) -> tuple[Array | int, ...]:
        reach = self.reach
        bounds = reach.bounds.lo, reach.bounds.hi, reach.zero_points, reach.factors
        return *bounds, self.shift, self.terms, int(self.corrects)

    def __call__(self, centred: Array) -> Array:
        interval = self.reach(centred)
        largest = np.maximum(np.abs(interval.lo), np.abs(interval.hi)).reshape(-1)
        shifted = largest if not self.shift else (largest >> self.shift) + self.terms
        return np.broadcast_to(with_correction_room(shifted) if self.corrects else shifted, (len(centred),))


@dataclass(frozen=True, eq=False)
class _Choice:
    """What fits 32 bits of the ways to quantize and to slice a reduction, and a note for all that this costs."""

    operands: Operands
    plan: Plan
    rounder: Rounder

    def of_most_bits(self) -> tuple[PartialSums, list[str]]:
        """With the most bits of the weights that fit, whole if possible; QuantizationError where none do."""
        op, size, options = self.operands.op, self._size, self.plan.config.weight_of(self.operands.op.name)
        for bits in range(options.bits, 1, -1):
            lowered = options.model_copy(update={"bits": bits})
            for cut in cuts(self.operands, lowered):
                sums = PartialSums(self.operands, self._quantized(lowered, cut), cut)
                if self._fits(sums, self._bias):
                    notes = [] if bits == options.bits else [_fewer_bits(sums, bits, options.bits, size)]
                    return sums, notes + _shifts(sums, size)
        raise QuantizationError(
            f"{op.name} ({op.op}): its sums of {size} products need more than 32 bits even with weights of 2 bits; "
            f"lower activation.bits for {op.inputs[0].name}"
        )

    def of_given(self, weight: QuantizedWeight) -> tuple[PartialSums, list[str]]:
        """The sums with the integers that the weight came with, in slices if need be; QuantizationError where they do
        not fit 32 bits."""
        op, size = self.operands.op, self._size
        for cut in cuts(self.operands, WeightConfig()):
            sums = PartialSums(self.operands, weight, cut)
            if self._fits(sums, None if self._joins_exactly else self._bias):
                return sums, _shifts(sums, size)
        raise QuantizationError(
            f"{op.name} ({op.op}): its sums of {size} products of integers that the network brings need more than 32 "
            f"bits; train them with fewer bits"
        )

    @property
    def _size(self) -> int:
        """How many products one output adds up."""
        size: int = self.operands.weight[0].size
        return size

    @cached_property
    def _wanted(self) -> Array | None:
        """(O,), the scales to which the accumulator is brought; None where nothing rescales it."""
        op, form = self.operands.op, self.operands.form
        target = self.plan[op].next_target
        if target is None:
            return None
        scales = target.scales(op.shape)
        return np.broadcast_to(_largest_by(form.channel_axis, scales), (self.operands.output_count,))

    @cached_property
    def _bias(self) -> Array | None:
        """(O,), the largest |bias| that is added to each output channel; None where there is none."""
        op, bias = self.operands.op, self.plan.bias_after(self.operands.op)
        if bias is None:
            return None
        return _largest_by(self.operands.form.channel_axis, np.abs(np.broadcast_to(bias, op.shape)))

    def _quantized(self, options: WeightConfig, cut: Cut) -> QuantizedWeight:
        operands = self.operands
        magnitudes = _Magnitudes(operands.reach, cut.shift, cut.terms, self.plan.config.corrects_biases)
        accumulator = Accumulator(operands.step * 2.0**cut.shift, self._wanted, self._bias, magnitudes)
        asked = Asked(operands.weight, options, weight_ends(operands, options), accumulator)
        return self.rounder(operands.op, asked)

    @cached_property
    def _joins_exactly(self) -> bool:
        """Whether the bias need not fit the accumulator: a sum that a quantizer rounds is formed beside it then."""
        consumers = self.plan.graph.consumers[self.operands.op]
        return len(consumers) == 1 and self.plan[consumers[0]].is_summed_exactly

    def _fits(self, sums: PartialSums, bias: Array | None) -> bool:
        """Whether the sums and the bias behind them, (O,), stay within 32 bits."""
        added: Array = np.zeros(self.operands.output_count, object)
        if bias is not None:
            added = np.array([math.ceil(step) + 1 for step in (bias / sums.step).tolist()], object)
        reached = sums.reached(added)
        return reached is not None and bool(self._with_room(reached) <= sums.limit)

    def _with_room(self, bound: Any) -> Any:
        """`bound` with what a correction of the bias may add to it."""
        return with_correction_room(bound) if self.plan.config.corrects_biases else bound


def _fewer_bits(sums: PartialSums, bits: int, asked: int, size: int) -> str:
    return (
        f"weights of {bits} bits instead of {asked}, so that {size} products fit 32 bits; a weight is off by at most "
        f"{float(sums.weight.scale.max()) / 2:.3g}"
    )


def _shifts(sums: PartialSums, size: int) -> list[str]:
    """A note where partial sums are shifted."""
    if not sums.cut.shift:
        return []
    return [
        f"{sums.cut.terms} partial sums, shifted right by {sums.cut.shift} before they are added, so that {size} "
        f"products fit 32 bits; the sum is off by at most {sums.loss:.3g}"
    ]


def _largest_by(axis: int, values: Array) -> Array:
    """The largest of `values` at each place along an axis."""
    result: Array = values.max(axis=tuple(other for other in range(values.ndim) if other != axis))
    return result
