"""Constants that came quantized: their integers, and the forms of scales and zero points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.quantization.quantizer import SMALLEST_SCALE, ChannelGroups, Target
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.graph import evaluate_symbol
from mrt.symbol.grid import compact, ranked
from mrt.symbol.operators.integer import Dequantize
from mrt.symbol.types import INT32_MAX

FACTOR_BITS = 30
"""The scales of channels are integer multiples of a common one; products of two such factors fit 64 bits."""


@dataclass(frozen=True, eq=False)
class ConstantGrid:
    """The integers of a constant that came quantized: real = scale * (integers - zero_point).

    integers: int64 of the constant's shape. scale: float64, not negative; zero_point: int64; both of the constant's
    rank, each axis 1 or full.
    """

    integers: Array
    scale: Array
    zero_point: Array


def fold_constants(graph: Graph) -> tuple[Graph, dict[str, ConstantGrid]]:
    """The graph with dequantized constants as float parameters, and the grids of these by their names.

    A graph that has none is given back itself.
    """
    if not any(isinstance(symbol.operator, Dequantize) for symbol in graph.operators):
        return graph, {}
    grids: dict[str, ConstantGrid] = {}

    def fold(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        values = [builder.value(source) for source in inputs]
        known = [value for value in values if value is not None]
        if not isinstance(symbol.operator, Dequantize) or len(known) < len(values):
            return None
        made = builder.parameter(symbol.name, evaluate_symbol(symbol, known), symbol.origin)
        grids[made.name] = _constant_grid(known, symbol.shape)
        return made

    folded = rewrite_graph(graph, fold)
    return (folded, grids) if grids else (graph, {})


def _constant_grid(dequantized: Sequence[Array], shape: tuple[int, ...]) -> ConstantGrid:
    """The grid of (integers, scale, zero point). Where a scale is negative, as NNCF gives them, the integers change
    sign."""
    integers, scale, zero_point = (ranked(value, len(shape)) for value in dequantized)
    sign = np.where(scale < 0, -1, 1)
    turned = np.broadcast_to(integers.astype(np.int64) * sign, shape)
    return ConstantGrid(turned, np.abs(scale.astype(np.float64)), zero_point.astype(np.int64) * sign)


def grid_target(step: Array, zero: Array, lo: int, hi: int, rank: int) -> Target | None:
    """The form of real = step * (q - zero) for a tensor of this rank, lo <= q <= hi; None where no target has it.

    Steps and zero points are one value, or one along one axis; not along the batch. They must be positive, and
    integers that fit 32 bits.
    """
    step, zero = (compact(ranked(np.asarray(value, np.float64), rank)) for value in (step, zero))
    axes = {axis for values in (step, zero) for axis in range(rank) if values.shape[axis] > 1}
    if (step < SMALLEST_SCALE).any() or (zero != np.rint(zero)).any() or np.abs(zero).max() > INT32_MAX - hi + lo:
        return None
    if not axes:
        return Target(float(step.item()), lo, hi, pinned=True, zero_point=int(zero.item()), exact=True)
    if len(axes) > 1 or 0 in axes:
        return None
    axis = axes.pop()
    steps, zeros = (values.reshape(-1) for values in np.broadcast_arrays(step, zero))
    if (steps == steps[0]).all():
        common, factors = float(steps[0]), np.ones(steps.size, np.int64)
    else:
        common = float(steps.max()) * 2.0**-FACTOR_BITS
        factors = np.maximum(np.rint(steps / common), 1).astype(np.int64)
    groups = ChannelGroups(axis, 1, tuple(factors.tolist()), tuple(zeros.astype(np.int64).tolist()))
    return Target(common, lo, hi, pinned=True, groups=groups, exact=True)
