"""Gives the levels of FakeQuantize an integer for the real zero: by a constant that is added, or by other limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.preparation.channels import layer_of
from mrt.preparation.constants import add_constant
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Pass, PassResult, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.graph import evaluate_symbol
from mrt.symbol.grid import Grid, compact
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Mean, Sum
from mrt.symbol.operators.transform import Slice, SliceAxis, Transpose


@dataclass(frozen=True)
class IntegerZeroPoints(Pass):
    """The FakeQuantize of an activation gives So (q - Zo) with an integer Zo, which is the zero point of integers.

    1. With `tune`: where a zero point of input or output is no integer, one end of that range moves so that it is; of
       the two ends that whose move leaves the wider range. Where both ranges are one they stay one. What was moved is
       noted. Source: the gentle tuning of the limits that the interpretation of FakeQuantize as Q + DQ needs.
    2. Else an output's zero point is rounded and what that moves is added: So (q - round(Zo)) + So (round(Zo) - Zo).
       The constant goes on behind convolutions, deconvolutions, dense layers, pads with zeros, average pooling, sums,
       means, slices, transposes and reshapes: there it is one constant for each position, which joins the bias. Exact.

    The zero point of an input needs no integer: what is rounded has room for its fraction.
    """

    tune: bool = False

    def run(self, graph: Graph) -> PassResult:
        notes: list[str] = []
        added: dict[Symbol, tuple[Symbol, Array]] = {}

        def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            if isinstance(symbol.operator, FakeQuantize):
                return self._quantizer(symbol, symbol.operator, inputs, builder, added, notes)
            if inputs and inputs[0] in added:
                return _behind(symbol, inputs, builder, added)
            return None

        rewritten = rewrite_graph(graph, rewrite)
        return PassResult(rewritten, notes=tuple(notes)) if added or notes else PassResult(graph)

    def _quantizer(
        self,
        symbol: Symbol,
        operator: FakeQuantize,
        inputs: tuple[Symbol, ...],
        builder: GraphBuilder,
        added: dict[Symbol, tuple[Symbol, Array]],
        notes: list[str],
    ) -> Symbol | None:
        values = [builder.value(source) for source in inputs[1:]]
        limits = [value for value in values if value is not None]
        if len(limits) < len(values):
            return None
        if self.tune:
            tuned = _tuned(limits, operator.levels)
            if all(np.array_equal(a, b) for a, b in zip(limits, tuned, strict=True)):
                return None
            notes.append(f"{symbol.name} ({symbol.op}): tuned to an integer zero point: {_moves(limits, tuned)}")
            return _with_limits(symbol, operator, inputs[0], tuned, symbol.name, builder)
        grid = operator.grid(limits, symbol.type.rank)
        if grid.has_integer_output_zero or builder.value(inputs[0]) is not None:
            return None
        moved = grid.step_out * (np.rint(grid.zero_out) - grid.zero_out)
        low, high, first, last = (limit.astype(np.float64) for limit in limits)
        levels = _with_limits(
            symbol, operator, inputs[0], [low, high, first - moved, last - moved], f"{symbol.name}_levels", builder
        )
        total = add_constant(builder, levels, moved, symbol.name, f"{symbol.name}_shift")
        added[total] = levels, np.broadcast_to(moved, symbol.shape)
        return total


def _with_limits(
    symbol: Symbol, operator: FakeQuantize, data: Symbol, limits: list[Array], name: str, builder: GraphBuilder
) -> Symbol:
    parameters = [
        builder.parameter(f"{name}_{which}", limit, symbol.origin)
        for which, limit in zip(operator.input_names[1:], limits, strict=True)
    ]
    return builder.apply(operator, [data, *parameters], name, symbol.origin)


def _behind(
    symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder, added: dict[Symbol, tuple[Symbol, Array]]
) -> Symbol | None:
    """A linear operator on the levels, with what it makes of the constant added behind it; None for any other."""
    levels, constant = added[inputs[0]]
    operator, layer = symbol.operator, layer_of(symbol)
    if layer is not None:
        weight = _value(inputs[1], builder)
        if weight is None:
            return None
        made = layer.with_bias(False).evaluate(constant, weight)
    elif len(inputs) == 1 and _is_linear(operator):
        made = operator.evaluate(constant)
    else:
        return None
    product = builder.apply(operator, [levels, *inputs[1:]], f"{symbol.name}_levels", symbol.origin)
    made = np.asarray(made, np.float64)
    total = add_constant(builder, product, compact(made[:1]), symbol.name, f"{symbol.name}_shift")
    if layer is None:
        added[total] = product, made
    return total


def _is_linear(operator: Operator) -> bool:
    """Whether it is one of the operators of one tensor that rule 2 names."""
    match operator:
        case Pad():
            return operator.mode != "constant" or operator.constant_value == 0
        case Pooling():
            return operator.pool_type != "max"
        case Slice() | SliceAxis() | Transpose() | Mean() | Sum():
            return True
    return operator.keeps_order


def _value(symbol: Symbol, builder: GraphBuilder) -> Array | None:
    """The array of a parameter, or of what is made of parameters alone, such as by a quantizer."""
    values = [builder.value(source) for source in symbol.inputs]
    known = [value for value in values if value is not None]
    if known and len(known) == len(values):
        return evaluate_symbol(symbol, known)
    return builder.value(symbol)


def _tuned(limits: list[Array], levels: int) -> list[Array]:
    """The limits with integer zero points; those that have them already stay as they are."""
    low, high, first, last = limits
    outer = _tuned_range(low, high, levels)
    if np.array_equal(low, first) and np.array_equal(high, last):
        return [*outer, *outer]
    return [*outer, *_tuned_range(first, last, levels)]


def _tuned_range(low: Array, high: Array, levels: int) -> tuple[Array, Array]:
    """[low, high] with zero at a level, unless it has that: one end moves, the one that leaves the wider range.

    With z = round(-low / step) of top = levels - 1 the range is [-z, top - z] steps: of high / (top - z) where low
    moves, of -low / z where high does. A range that does not hold zero is widened to.
    """
    grid = Grid.of(levels, [low, high, low, high], max(low.ndim, high.ndim))
    if grid.has_integer_output_zero or (high <= low).any():
        return low, high
    top = levels - 1
    below, above = np.broadcast_arrays(
        np.minimum(low, 0.0).astype(np.float64), np.maximum(high, 0.0).astype(np.float64)
    )
    zero = np.rint(-below / ((above - below) / top))
    with np.errstate(divide="ignore", invalid="ignore"):
        step = np.fmax(np.where(zero < top, above / (top - zero), 0.0), np.where(zero > 0, -below / zero, 0.0))
    return -zero * step, (top - zero) * step


def _moves(before: list[Array], after: list[Array]) -> str:
    """What was moved, of the widest input and output ranges."""
    found = []
    for name, index in (("input", 0), ("output", 2)):
        old, new = ((float(limits[index].min()), float(limits[index + 1].max())) for limits in (before, after))
        if old != new:
            found.append(f"{name} [{old[0]:.6g}, {old[1]:.6g}] became [{new[0]:.6g}, {new[1]:.6g}]")
    return ", ".join(found) or "ends of channels moved"
