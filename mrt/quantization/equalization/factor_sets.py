"""Which channels of a float network may be scaled by factors that cancel, and which of them by the same.

A source divides what it makes by factors, since they go into its parameters; operators that commute with positive
factors carry them on; layers that read the tensor multiply the columns of their weights by them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mrt.calibration import Range
from mrt.quantization.equalization.layers import has_rows
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.channels import channel_axes
from mrt.symbol.operation import Operation
from mrt.symbol.operator import EVERYTHING
from mrt.symbol.places import NOWHERE, Places, places_behind

FIXED = 0
"""The number of the factor that is 1 since something stands in its way."""

SourceAxis = Callable[[Graph, Symbol, Mapping[str, int]], "int | None"]
"""Along which axis an operator's own parameters divide what it makes by factors, by the channel axes of all symbols of
its graph; None where they cannot."""


@dataclass(frozen=True, eq=False)
class Along:
    """The factors of a tensor. axis: that counts its channels. numbers: int64, of the factor of each place there."""

    axis: int
    numbers: Array


@dataclass(frozen=True, eq=False)
class Reader:
    """A layer with a constant weight that reads factors.

    axis: of its data, along which these lie. numbers: int64, of the factor of each column of its weight: one for each
    channel or, where it flattens its data, for each feature that it sums over.
    """

    layer: Symbol
    axis: int
    numbers: Array

    @property
    def data(self) -> Symbol:
        return self.layer.inputs[0]

    def columns(self, values: Array) -> Array:
        """From one value for each place along the axis to one for each column of the weight."""
        return columns_of(self.layer, self.axis, values)


def columns_of(layer: Symbol, axis: int, values: Array) -> Array:
    """See `Reader.columns`."""
    if not getattr(layer.operator, "flatten", False):
        return values
    data = layer.inputs[0]
    shape = tuple(-1 if a == axis else 1 for a in range(data.type.rank))
    features: Array = np.broadcast_to(values.reshape(shape), data.shape)[0].reshape(-1)
    return features


@dataclass(frozen=True, eq=False)
class FactorSets:
    """The factors of a graph, numbered; equal ones have one number.

    channel_axes: of the graph. along: of the tensors that have factors. sources: that divide by them. groups: int64 by
    the number of a factor, the least number of those that meet in some tensor, and so are chosen together. obstacles:
    by the name of a source none of whose factors is free, why.
    """

    graph: Graph
    channel_axes: Mapping[str, int]
    along: Mapping[Symbol, Along]
    sources: tuple[Symbol, ...]
    readers: tuple[Reader, ...]
    groups: Array
    obstacles: Mapping[str, str]

    def channels(self, tensor: Symbol, ranges: Mapping[str, Range]) -> Range | None:
        """The range of a tensor, with those of the channels along its axis; None where these were not told apart."""
        found, axis = ranges.get(tensor.name), self.along[tensor].axis
        if found is None or self.channel_axes.get(tensor.name) != axis or len(found.channels) != tensor.shape[axis]:
            return None
        return found

    @cached_property
    def members(self) -> Mapping[int, tuple[Reader, ...]]:
        """By the number of a group, the layers that read it."""
        found: dict[int, list[Reader]] = {}
        for reader in self.readers:
            free = reader.numbers[reader.numbers != FIXED]
            if free.size:
                found.setdefault(int(self.groups[free[0]]), []).append(reader)
        return {group: tuple(readers) for group, readers in found.items()}

    @cached_property
    def makers(self) -> Mapping[int, Symbol]:
        """By the number of a group, the first source that divides by its factors."""
        found: dict[int, Symbol] = {}
        for source in self.sources:
            numbers = self.along[source].numbers
            for group in set(self.groups[numbers[numbers != FIXED]].tolist()):
                found.setdefault(group, source)
        return found


def find_factor_sets(graph: Graph, source_axis: SourceAxis, closed: Collection[str] = ()) -> FactorSets:
    """The factors that a prepared float graph leaves free.

    source_axis: says what a source is. closed: the names of tensors that keep their scale.
    """
    walk = _Walk(graph, source_axis, closed)
    for symbol in graph.operators:
        walk.visit(symbol)
    return walk.found()


def layer_axis(graph: Graph, symbol: Symbol, axes: Mapping[str, int]) -> int | None:
    """The axis of a layer's output channels, if its weight and its bias are parameters."""
    if not has_rows(symbol) or not _are_parameters(graph, symbol, 1):
        return None
    return symbol.channel_axis


def normalization_axis(graph: Graph, symbol: Symbol, axes: Mapping[str, int]) -> int | None:
    """The axis of the factors and terms with which a normalisation ends, or a multiplication by a constant vector."""
    axis, rank = symbol.operator.affine_axis, symbol.type.rank
    if axis is not None:
        return axis % rank if _are_parameters(graph, symbol, 1) else None
    constants = [graph.value(source) for source in symbol.inputs]
    if symbol.operator.operation is not Operation.MULTIPLY or len(constants) != 2 or rank == 0:
        return None
    axis, vectors = axes[symbol.name], [value for value in constants if value is not None]
    shapes = [(1,) * (rank - vector.ndim) + vector.shape for vector in vectors]
    is_vector = len(shapes) == 1 and shapes[0][axis] == symbol.shape[axis] > 1
    return axis if is_vector and vectors[0].dtype.kind == "f" else None


def _are_parameters(graph: Graph, symbol: Symbol, first: int) -> bool:
    """Whether the inputs from `first` on are parameters of floats."""
    values = [graph.value(source) for source in symbol.inputs[first:]]
    return bool(values) and all(value is not None and value.dtype.kind == "f" for value in values)


def scaled_inputs(graph: Graph, symbol: Symbol) -> tuple[int, ...]:
    """The inputs whose common factors the output takes; () where the operator does not commute with factors.

    One with limits does, as its limits are scaled too. A product takes those of its larger factor that is computed.
    """
    operator, inputs = symbol.operator, symbol.inputs
    if operator.operation is Operation.MULTIPLY and len(inputs) == 2:
        computed = [index for index, source in enumerate(inputs) if graph.value(source) is None]
        return (max(computed, key=lambda index: inputs[index].type.size),) if computed else ()
    if operator.is_elementwise and operator.limits != EVERYTHING:
        return (0,)
    return operator.homogeneous_in(len(inputs))


class _Walk:
    """Goes through a graph in order and notes which factors must be equal."""

    def __init__(self, graph: Graph, source_axis: SourceAxis, closed: Collection[str]) -> None:
        self._graph, self._source_axis, self._closed = graph, source_axis, frozenset(closed)
        self._axes = channel_axes(graph)
        self._outputs = frozenset(graph.outputs)
        self._along: dict[Symbol, Along] = {}
        self._equal: list[tuple[Array, Array]] = []
        self._fixed: list[tuple[Array, str]] = []
        self._sources: list[Symbol] = []
        self._readers: list[Reader] = []
        self._count = 1

    def visit(self, symbol: Symbol) -> None:
        found = self._made_by(symbol)
        if found is None:
            return
        self._along[symbol] = found
        if found.axis == 0 or symbol.dtype not in ("float32", "float64"):
            self._fix(symbol, "no channels of floats")
        elif symbol in self._outputs:
            self._fix(symbol, "an output of the network")
        elif symbol.name in self._closed:
            self._fix(symbol, "a tensor whose scale is given")

    def _made_by(self, symbol: Symbol) -> Along | None:
        axis = self._source_axis(self._graph, symbol, self._axes)
        is_layer = symbol.operator.weight_channel_axis is not None
        if is_layer:
            self._read(symbol)
        elif axis is not None:
            self._fix_inputs(symbol, range(len(symbol.inputs)))
        else:
            return self._carried(symbol)
        if axis is None:
            return None
        self._sources.append(symbol)
        return Along(axis, self._new(symbol.shape[axis]))

    def _read(self, layer: Symbol) -> None:
        """A layer takes the factors of what it sums over."""
        self._fix_inputs(layer, range(1, len(layer.inputs)))
        found, data = self._along.get(layer.inputs[0]), layer.inputs[0]
        if found is None:
            return
        if not has_rows(layer) or not _are_parameters(self._graph, layer, 1):
            self._fix(data, f"{layer.op}, whose weight is no parameter with rows")
            return
        flattens = getattr(layer.operator, "flatten", False) and found.axis > 0
        if flattens or layer.operator.data_channel_axis(data.type.rank) == found.axis > 0:
            self._readers.append(Reader(layer, found.axis, columns_of(layer, found.axis, found.numbers)))
        else:
            self._fix(data, f"{layer.op}, which sums over another axis")

    def _carried(self, symbol: Symbol) -> Along | None:
        """The factors behind an operator that is no source; None where they all are 1."""
        scaled = scaled_inputs(self._graph, symbol)
        self._fix_inputs(symbol, [index for index in range(len(symbol.inputs)) if index not in scaled])
        computed = [index for index in scaled if self._graph.value(symbol.inputs[index]) is None]
        places = [self._places(symbol, index) for index in computed]
        apart = [each for each in places if each is not None]
        takes_constants = symbol.operator.is_elementwise or len(computed) == len(scaled)
        if not apart or len(apart) < len(places) or len({each.axis for each in apart}) > 1 or not takes_constants:
            self._fix_inputs(symbol, computed)
            return None
        numbers = np.full(symbol.shape[apart[0].axis], NOWHERE)
        for index, each in zip(computed, apart, strict=True):
            there = each.sources != NOWHERE
            given = self._along[symbol.inputs[index]].numbers[each.sources]
            both = there & (numbers != NOWHERE)
            self._equal.append((numbers[both], given[both]))
            numbers = np.where(there & ~both, given, numbers)
        empty = numbers == NOWHERE
        numbers[empty] = self._new(int(empty.sum()))
        return Along(apart[0].axis, numbers)

    def _places(self, symbol: Symbol, index: int) -> Places | None:
        found = self._along.get(symbol.inputs[index])
        return None if found is None else places_behind(symbol, index, found.axis)

    def _new(self, count: int) -> Array:
        numbers = np.arange(self._count, self._count + count)
        self._count += count
        return numbers

    def _fix_inputs(self, symbol: Symbol, indices: Collection[int]) -> None:
        for index in indices:
            self._fix(symbol.inputs[index], symbol.op)

    def _fix(self, symbol: Symbol, why: str) -> None:
        if symbol in self._along:
            self._fixed.append((self._along[symbol].numbers, why))

    def found(self) -> FactorSets:
        """What the walk found, once all operators were visited."""
        free = _least_equal(self._count, self._equal)
        fixed = [(numbers, np.full_like(numbers, FIXED)) for numbers, _ in self._fixed]
        least = _least_equal(self._count, [*self._equal, *fixed])
        along = {symbol: replace(found, numbers=least[found.numbers]) for symbol, found in self._along.items()}
        together = [(n[:-1], n[1:]) for n in (found.numbers[found.numbers != FIXED] for found in along.values())]
        why = {int(number): reason for numbers, reason in reversed(self._fixed) for number in free[numbers]}
        stuck = {
            source.name: next((why[n] for n in free[self._along[source].numbers].tolist() if n in why), "nothing")
            for source in self._sources
            if not along[source].numbers.any()
        }
        readers = tuple(replace(reader, numbers=least[reader.numbers]) for reader in self._readers)
        groups = _least_equal(self._count, together)
        return FactorSets(self._graph, self._axes, along, tuple(self._sources), readers, groups, stuck)


def _least_equal(count: int, pairs: Collection[tuple[Array, Array]]) -> Array:
    """For each of `count` numbers the least of those that it equals, int64, by pairs of arrays of equal numbers."""
    least = np.arange(count)
    first, second = (np.concatenate([np.zeros(0, np.int64), *(pair[k] for pair in pairs)]) for k in (0, 1))
    while True:
        a, b = least[first], least[second]
        if np.array_equal(a, b):
            return least
        np.minimum.at(least, np.maximum(a, b), np.minimum(a, b))
        while not np.array_equal(least, least[least]):
            least = least[least]
