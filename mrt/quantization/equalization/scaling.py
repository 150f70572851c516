"""A network whose channels are scaled by factors that cancel, and what calibration would see of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Calibration, Range
from mrt.quantization.equalization.factor_sets import FactorSets, Reader, scaled_inputs
from mrt.quantization.equalization.layers import columns_in, scaled_weight
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol
from mrt.symbol.builder import keep, rewrite_graph
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum

Input = tuple[Symbol, int]
"""A symbol, and the place of one of its inputs."""


@dataclass(frozen=True, eq=False)
class _Limited:
    """A tensor of the values of `source` below `most`, one for each channel."""

    source: str
    most: Array


@dataclass(frozen=True, eq=False)
class ScaledNetwork:
    """The float network with every channel divided by its factor; outputs stay what they were, to rounding.

    limits: by name, the tensors that are new: between the limits of an operator that became one for each channel.
    """

    sets: FactorSets
    factors: Array
    graph: Graph
    limits: Mapping[str, _Limited]

    @classmethod
    def of(cls, sets: FactorSets, factors: Array) -> ScaledNetwork:
        """factors: float64 (numbers,), positive, 1 for the one that is fixed."""
        changed = _changed_parameters(sets, factors)
        graph, own, taken = sets.graph, dict[str, Array](), dict[Input, Array]()
        for (symbol, index), value in changed.items():
            source = symbol.inputs[index]
            only = len(graph.consumers[source]) == 1 and source not in graph.outputs
            if only and value.shape == source.shape:
                own[source.name] = value
            else:  # Others read it too, or it has one value for all channels so far.
                taken[symbol, index] = value
        limits: dict[str, _Limited] = {}

        def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            factor = _along(sets, factors, symbol)
            if factor is not None and _is_limited(symbol) and (factor != 1).any():
                return _limited(symbol, inputs[0], (sets.along[symbol].axis, factor), builder, limits)
            new = [
                builder.parameter(f"{source.name}_scaled", taken[symbol, index]) if (symbol, index) in taken else source
                for index, source in enumerate(inputs)
            ]
            return keep(symbol, tuple(new), builder)

        given = Graph(graph.inputs, graph.outputs, {**graph.parameters, **own})
        return cls(sets, factors, rewrite_graph(given, rewrite), limits)

    def observed(self, before: Calibration) -> Calibration | None:
        """What calibration would find, from what it found before; None where that does not tell channels apart.

        It is so only of ranges that go from the least to the greatest value.
        """
        scaled = {symbol: _along(self.sets, self.factors, symbol) for symbol in self.sets.along}
        moved = {symbol.name: (symbol, by) for symbol, by in scaled.items() if by is not None and (by != 1).any()}
        ranges = dict(before.ranges)
        for name in ranges.keys() & moved.keys():
            symbol, factor = moved[name]
            if self.sets.channels(symbol, ranges) is None:
                return None
            ranges[name] = _scaled_range(ranges[name], factor)
        means, squares = dict(before.means), dict(before.squares)
        for table, power in ((means, 1), (squares, 2)):
            for channels in [each for each in table if each.tensor in moved]:
                symbol, factor = moved[channels.tensor]
                if channels.axis != self.sets.along[symbol].axis:
                    return None
                table[channels] = tuple((np.asarray(table[channels]) / factor**power).tolist())
        for name, limited in self.limits.items():
            if limited.source not in ranges:
                return None
            ranges[name] = _limited_range(ranges[limited.source], limited.most)
        return Calibration(ranges, means, squares)


def _along(sets: FactorSets, factors: Array, symbol: Symbol) -> Array | None:
    """The factor of each place of a tensor, along its axis; None where it has none."""
    found = sets.along.get(symbol)
    return None if found is None else factors[found.numbers]


def _is_limited(symbol: Symbol) -> bool:
    """Whether an operator holds its data to a limit that factors scale."""
    limits = symbol.operator.limits
    return symbol.operator.is_elementwise and any(math.isfinite(limit) and limit != 0 for limit in limits)


def _limited(
    symbol: Symbol, data: Symbol, along: tuple[int, Array], builder: GraphBuilder, limits: dict[str, _Limited]
) -> Symbol:
    """An operator's limits over the factor of each channel, the last of them under the operator's name.

    The upper one comes first: a quantizer that ends below it makes nothing of both, as of the limits of one operator.
    along: the axis of the factors, and they. limits: is told of what stands between two limits.
    """
    (least, most), (axis, factor) = symbol.operator.limits, along
    shape = tuple(-1 if a == axis else 1 for a in range(symbol.type.rank))

    def limit(value: float, name: str) -> Symbol:
        return builder.parameter(f"{symbol.name}_{name}", (value / factor).reshape(shape).astype(symbol.dtype))

    steps: list[tuple[Operator, list[Symbol]]] = []
    if math.isfinite(most):
        steps.append((BroadcastMinimum(), [limit(most, "most")]))
    if math.isfinite(least):
        steps.append((Relu(), []) if least == 0 else (BroadcastMaximum(), [limit(least, "least")]))
    for operator, constants in steps[:-1]:
        data = builder.apply(operator, [data, *constants], f"{symbol.name}_from_above")
        limits[data.name] = _Limited(symbol.inputs[0].name, most / factor)
    operator, constants = steps[-1]
    return builder.apply(operator, [data, *constants], symbol.name, symbol.origin)


def _changed_parameters(sets: FactorSets, factors: Array) -> dict[Input, Array]:
    """The parameters that take factors, by what reads them."""
    found: dict[Input, Array] = {}
    readers = {reader.layer: reader for reader in sets.readers}
    sources = frozenset(sets.sources)
    for symbol in sets.graph.operators:
        factor = _along(sets, factors, symbol)
        if symbol.operator.weight_channel_axis is not None:
            found |= _of_layer(sets.graph, symbol, factor, readers.get(symbol), factors)
        elif factor is not None and (factor != 1).any():
            parameters = [i for i, source in enumerate(symbol.inputs) if sets.graph.value(source) is not None]
            if symbol not in sources:
                scaled = scaled_inputs(sets.graph, symbol)
                parameters = [index for index in parameters if index in scaled]
            for index in parameters:
                found[symbol, index] = _divided(sets.graph, symbol, index, sets.along[symbol].axis, factor)
    return found


def _of_layer(
    graph: Graph, layer: Symbol, factor: Array | None, reader: Reader | None, factors: Array
) -> dict[Input, Array]:
    """The weight and the bias of a layer that makes or reads scaled channels."""
    weight = graph.value(layer.inputs[1])
    axis = layer.channel_axis
    if weight is None or axis is None or (factor is None and reader is None):
        return {}
    of_rows = np.ones(layer.shape[axis]) if factor is None else factor
    of_columns = np.ones(columns_in(layer, weight)) if reader is None else factors[reader.numbers]
    if (of_rows == 1).all() and (of_columns == 1).all():
        return {}
    found = {(layer, 1): scaled_weight(layer, weight, of_rows, of_columns)}
    for index in range(2, len(layer.inputs)):
        bias = graph.parameters[layer.inputs[index].name]
        found[layer, index] = (bias / of_rows).astype(bias.dtype)
    return found


def _divided(graph: Graph, symbol: Symbol, index: int, axis: int, factor: Array) -> Array:
    """A parameter of an elementwise operator, or of a normalisation, over the factors along an axis of the output."""
    value = graph.parameters[symbol.inputs[index].name]
    if symbol.operator.affine_axis is not None:
        return (value / factor).astype(value.dtype)
    rank = symbol.type.rank
    aligned = value.reshape((1,) * (rank - value.ndim) + value.shape)
    result = (aligned / factor.reshape(tuple(-1 if a == axis else 1 for a in range(rank)))).astype(value.dtype)
    return result.reshape(value.shape) if result.size == value.size else result


def _scaled_range(found: Range, factor: Array) -> Range:
    return _range_of(np.array(found.channels) / factor[:, None], found)


def _limited_range(found: Range, most: Array) -> Range:
    # The limits are parameters of float32.
    return _range_of(np.minimum(np.array(found.channels), most.astype(np.float32)[:, None]), found)


def _range_of(ends: Array, found: Range) -> Range:
    channels = tuple((float(lo), float(hi)) for lo, hi in ends)
    return replace(found, lo=float(ends.min()), hi=float(ends.max()), channels=channels)
