"""Trained quantization: FakeQuantize, quantize and dequantize, whose integers the network brings with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from expansions.addition import GUARD_BITS
from mrt.errors import QuantizationError
from mrt.quantization.constant_grids import grid_target
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import SMALLEST_SCALE, Target
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.grid import Grid, ranked
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.rounding import HALF_EVEN, HALF_ODD
from mrt.symbol.types import INT32_MAX


def _grid(symbol: Symbol[FakeQuantize], limits: Sequence[Array | None]) -> Grid | None:
    known = [limit for limit in limits if limit is not None]
    return symbol.operator.grid(known, symbol.type.rank) if len(known) == len(limits) else None


def _fake_quantize_grid(symbol: Symbol[FakeQuantize], graph: Graph) -> Target | None:
    grid = _grid(symbol, [graph.value(source) for source in symbol.inputs[1:]])
    if grid is None or (grid.step_in <= 0).any():
        return None
    target = grid_target(grid.step_in, grid.zero_in, grid.lo, grid.hi, symbol.type.rank)
    if target is None or target.groups is not None:
        return target
    # Halves go to even levels; these count from lo, and a level is the rounded integer and the zero point.
    return replace(target, rounding=HALF_ODD if (target.zero_point - target.lo) % 2 else HALF_EVEN)


def _fake_quantize_form(symbol: Symbol[FakeQuantize], graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    grid = _grid(symbol, [graph.value(source) for source in symbol.inputs[1:]])
    return None if grid is None else _output_target(grid, symbol.type.rank)


def _output_target(grid: Grid, rank: int) -> Target | None:
    return grid_target(grid.step_out, grid.zero_out, *grid.integer_limits, rank)


def _fake_quantize_demands(symbol: Symbol[FakeQuantize], graph: Graph) -> tuple[Demand, ...]:
    is_plain = _fake_quantize_grid(symbol, graph) is not None
    return (Demand.GRID if is_plain else Demand.WIDE, *(Demand.NARROW for _ in symbol.inputs[1:]))


def _fake_quantize_resolves(symbol: Symbol[FakeQuantize], graph: Graph) -> float:
    """A part of the least step, where no producer rounds for it."""
    grid = _grid(symbol, [graph.value(source) for source in symbol.inputs[1:]])
    if grid is None or not grid.step_in.any():
        return 0.0
    return float(np.abs(grid.step_in[grid.step_in != 0]).min()) * 2.0**-GUARD_BITS


@expansion(
    FakeQuantize,
    demands=_fake_quantize_demands,
    gain=lambda symbol, graph: 0.0,
    resolution=_fake_quantize_resolves,
    grid=_fake_quantize_grid,
    trained_form=_fake_quantize_form,
)
def expand_fake_quantize(op: Symbol[FakeQuantize], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """q = clip(round(X / Si + Zi), lo, hi), which stands for So (q - Zo): one requantization of what X is summed up in.

    Where input and output have other scales the integers stay and mean something else. With one step and an integer Zi,
    for the tensor or for each channel, the producer rescales X to q; else q is computed here, element by element:

        round(Xq sx / Si + Zi), the part of Zi that is no integer added before the last shift;
        X > il where il = ih, and the levels from ih down to il between, where il > ih.

    Source: FakeQuantize-1 of OpenVINO's operation set, with the clip behind the rounding, where it has one range for
    all channels. Halves go to even levels where a producer rescales by factors of few bits.
    """
    grid = _grid(op, [inputs.parameter(index) for index in range(1, 5)])
    data, target = inputs.quantized(0), plan[op].fixed
    if grid is None or target is None:
        raise QuantizationError(f"{op.name} ({op.op}): {_why_no_form(grid)}")
    if plan.edge(op, 0) is None:
        if not data.is_uniform and data.groups is not None:
            data = builder.grouped(data.symbol, data.step, data.groups) if data.is_centred else builder.centred(data)
        symbol = _levels(op, grid, data, builder)
    else:
        symbol = data.symbol
    if (grid.sign != 1).any():
        symbol = builder.apply(BroadcastMul(), [symbol, builder.constant(f"{op.name}_sign", grid.sign)], "_sign")
        symbol = builder.narrow(symbol, *grid.integer_limits)
    return at_target(symbol, target)


def _why_no_form(grid: Grid | None) -> str:
    """Why no integers stand for what a FakeQuantize gives, and what is needed."""
    if grid is None:
        return "its limits are computed; constants are needed"
    if (grid.step_out < SMALLEST_SCALE).any():
        return f"its output has steps of {grid.step_out.min():.3g}; {SMALLEST_SCALE:.3g} or more is needed"
    if not grid.has_integer_output_zero:
        return "its output has a zero point that is no integer; prepare the graph first, or set quantize.tune_ranges"
    return "its output has a scale along the batch or along several axes; one scale, or one axis of them, is needed"


def at_target(symbol: Symbol, target: Target) -> Quantized:
    """`symbol` standing for what integers of the target stand for; the tables keep what it was rounded as."""
    return Quantized.of(symbol, target.scales(symbol.shape), target.zero_points(symbol.shape), target.groups)


def _levels(op: Symbol, grid: Grid, data: Quantized, builder: IntegerBuilder) -> Symbol:
    """The integers of a quantizer whose steps or zero points no producer rescales to."""
    data = builder.centred(data)
    is_live = (grid.step_in != 0) | (grid.sign == 0)
    if is_live.all() and (grid.step_in >= 0).all():
        steps = np.where(grid.step_in > 0, grid.step_in, grid.step_in.max() or 1.0)
        return builder.rounded(data, steps, grid.zero_in, grid.lo, grid.hi)
    above = _above(f"{op.name}_high", data, grid.threshold, builder)
    if not grid.step_in.any():
        # Of two levels, far apart: the lower where nothing is above.
        symbol = _times(above, grid.hi - grid.lo, f"{op.name}_top", builder)
        return builder.add_constant(symbol, f"{op.name}_bottom", np.asarray(grid.lo), "_level")
    if not (grid.step_in < 0).all():
        raise QuantizationError(
            f"{op.name} ({op.op}): some of its channels have input_low above or equal to input_high and others below; "
            f"one order for all is needed"
        )
    top = grid.hi - grid.lo
    falling = builder.quantized(_opposite(data, builder), data.scale)
    between = builder.rounded(falling, -grid.step_in, grid.zero_in, grid.lo, grid.hi)
    # At and below input_high = input_low + top * step_in it is the lowest, beyond input_low the highest level.
    beyond = _above(f"{op.name}_low", data, grid.threshold + top * grid.step_in, builder)
    below = builder.add_constant(beyond, f"{op.name}_one", np.asarray(-1), "_below")
    moves = [_times(part, top, f"{op.name}_top", builder) for part in (below, above)]
    total = builder.apply(BroadcastAdd(), [between, builder.apply(BroadcastAdd(), moves, "_ends")], "_level")
    return builder.narrow(total, grid.lo, grid.hi)


def _opposite(data: Quantized, builder: IntegerBuilder) -> Symbol:
    minus = builder.constant(f"{data.symbol.name}_minus", np.full((1,) * data.symbol.type.rank, -1))
    return builder.apply(BroadcastMul(), [data.symbol, minus], "_opposite")


def _above(name: str, data: Quantized, threshold: Array, builder: IntegerBuilder) -> Symbol:
    """1 where the centred data is above a real threshold, else 0: clip(Xq - floor(threshold / sx), 0, 1)."""
    bounds = builder.bounds(data.symbol)
    # As float32 has the threshold, it may lie a rounding below the integer that it means.
    steps = threshold / data.scale
    nearest = np.rint(steps)
    steps = np.where(np.abs(steps - nearest) <= 1e-6 * np.maximum(np.abs(steps), 1.0), nearest, np.floor(steps))
    integers = np.clip(steps, float(bounds.min) - 1, float(bounds.max) + 1).astype(np.int64)
    return builder.narrow(builder.add_constant(data.symbol, name, -integers, "_beyond"), 0, 1)


def _times(symbol: Symbol, factor: int, name: str, builder: IntegerBuilder) -> Symbol:
    if factor == 1:
        return symbol
    constant = builder.constant(name, np.full((1,) * symbol.type.rank, factor))
    return builder.apply(BroadcastMul(), [symbol, constant], "_times")


def _parameters(symbol: Symbol, graph: Graph) -> tuple[Array, Array]:
    """Scale and zero point of a quantize or dequantize, float64 of the data's rank."""
    values = [graph.value(source) for source in symbol.inputs[1:]]
    found = [value for value in values if value is not None]
    if len(found) < 2:
        raise QuantizationError(
            f"{symbol.name} ({symbol.op}): its scale or zero point is computed at run time; constants are needed"
        )
    rank = symbol.type.rank
    scale, zero_point = (ranked(value, rank) for value in found)
    return scale.astype(np.float64), zero_point.astype(np.float64)


def _quantize_grid(symbol: Symbol[Quantize], graph: Graph) -> Target | None:
    operator = symbol.operator
    target = grid_target(*_parameters(symbol, graph), operator.a_min, operator.a_max, symbol.type.rank)
    return target and replace(target, rounding=operator.rounding, zero_point_first=operator.zero_point_first)


def _quantize_form(symbol: Symbol[Quantize], graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    grid = _quantize_grid(symbol, graph)
    if grid is None:
        return None
    return Target(1.0, grid.lo, grid.hi, pinned=True, exact=True)


@expansion(Quantize, demands=Demand.GRID, grid=_quantize_grid, trained_form=_quantize_form)
def expand_quantize(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """q = clip(round(X / s) + z, a_min, a_max), integers that stand for themselves; the producer rescales X to them.

    Source: QuantizeLinear of ONNX, IntQuant and BipolarQuant of QONNX. Halves go where the rounding says if the factors
    of the rescaling have few bits; directed roundings take what is nearly an integer as that.
    """
    target = plan[op].fixed
    if target is None:
        raise QuantizationError(
            f"{op.name} ({op.op}): its scale is not positive, or varies along several axes or along the batch; one "
            f"scale, or one along one other axis, is needed"
        )
    return at_target(inputs.quantized(0).symbol, target)


def _dequantize_form(symbol: Symbol, graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    source = sources[0]
    if source is None or source.groups is not None or source.scale != 1.0 or source.zero_point:
        return None
    return grid_target(*_parameters(symbol, graph), source.lo, source.hi, symbol.type.rank)


def _dequantize_gain(symbol: Symbol, graph: Graph) -> float:
    scale, _ = _parameters(symbol, graph)
    return float(scale.max())


@expansion(Dequantize, demands=Demand.WIDE, gain=_dequantize_gain, trained_form=_dequantize_form)
def expand_dequantize(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """The integers q stand for s (q - z): nothing is computed, but where they were sums with a scale of their own.

    Source: DequantizeLinear of ONNX.
    """
    data, target = inputs.quantized(0), plan[op].fixed
    if target is not None:
        return at_target(data.symbol, target)
    scale, zero_point = _parameters(op, plan.graph)
    data = builder.centred(data)
    steps = zero_point / data.scale
    if (steps != np.rint(steps)).any() or np.abs(steps).max() > INT32_MAX or (scale <= 0).any():
        raise QuantizationError(
            f"{op.name} ({op.op}): its data is no tensor of integers, or its scale is not positive; quantize the data "
            f"first"
        )
    symbol = data.symbol
    if steps.any():
        symbol = builder.add_constant(symbol, f"{op.name}_zero_point", -steps.astype(np.int64), "_centred")
    return builder.quantized(symbol, data.scale * scale)
