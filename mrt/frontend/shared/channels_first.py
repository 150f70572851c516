"""Channels-last networks become channels-first ones: transposes are put around windows and moved out of the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.arrangement import Repeat, Tile, UpSampling
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.normalization import BatchNorm, LogSoftmax, Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.selection import Min
from mrt.symbol.operators.transform import Concat, Flatten, Reshape, Slice, SliceAxis, Squeeze, Take, Transpose

Order = tuple[int, ...]
"""The axes of a transpose: axis i of what it gives is axis order[i] of what it reads."""

_Rule = Callable[[Any, Order], Operator]
"""An operator that reads transposed data, as it is on the data before the transpose."""

_RULES: dict[type[Operator], _Rule] = {
    BatchNorm: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Concat: lambda operator, order: replace(operator, dim=order[operator.dim]),
    Pad: lambda operator, order: replace(operator, pad_width=_pad_width(operator, order)),
    LogSoftmax: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Repeat: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Slice: lambda operator, order: replace(operator, **_bounds(operator, order)),
    SliceAxis: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Softmax: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Take: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Tile: lambda operator, order: replace(operator, reps=_moved_back(operator.reps, order)),
}

_WINDOWS = (Convolution, Deconvolution, Pooling, UpSampling)
"""What has its channels first."""


def channels_first(graph: Graph) -> Graph:
    """The graph with transposes moved behind the operators that read them, where two that meet are made one or none.

    A graph in which no convolution or pooling is transposed stays as it is.
    """
    if not any(_has_transposed_window(symbol) for symbol in graph.operators):
        return graph

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        own = order_of(symbol)
        if own is not None:
            data, order = through(inputs[0], own)
            return data if is_nothing(order) else builder.apply(Transpose(axes=order), [data], symbol.name)
        found = next(filter(None, map(order_of, inputs)), None)
        if found is None:
            return None
        if isinstance(symbol.operator, (Flatten, Reshape)):
            return _reshaped(symbol, inputs[0].inputs[0], found, builder)
        return moved_behind(symbol, inputs, found, builder)

    return rewrite_graph(graph, rewrite)


def moved_behind(
    symbol: Symbol,
    inputs: Sequence[Symbol],
    order: Order,
    builder: GraphBuilder,
    otherwise: Callable[[Symbol], Symbol | None] = lambda source: None,
) -> Symbol | None:
    """An operator that reads transposes of this order, before them; None where that is another operator.

    otherwise: what stands before the transpose for an operand that is neither transposed alike nor a parameter.
    """
    if isinstance(symbol.operator, (Sum, Mean, Max, Min)):
        return _reduced(symbol, symbol.operator, inputs[0].inputs[0], order, builder)
    if isinstance(symbol.operator, Squeeze):
        return _squeezed(symbol, symbol.operator, inputs[0].inputs[0], order, builder)
    rule = _rule_of(symbol.operator)
    data_before = _before(symbol, inputs, order, builder, otherwise) if rule is not None else None
    if rule is None or data_before is None:
        return None
    moved = builder.apply(rule(symbol.operator, order), data_before, symbol.name)
    return builder.apply(Transpose(axes=order), [moved], f"{symbol.name}_transposed")


def _rule_of(operator: Operator) -> _Rule | None:
    if operator.is_elementwise:
        return lambda same, order: same
    # Without an axis all of the data is repeated in the order that it has.
    return None if isinstance(operator, Repeat) and operator.axis is None else _RULES.get(type(operator))


def order_of(symbol: Symbol) -> Order | None:
    """The axes of a transpose, counted from the front; None for any other symbol."""
    return symbol.operator.order(symbol.type.rank) if isinstance(symbol.operator, Transpose) else None


def through(data: Symbol, order: Sequence[int]) -> tuple[Symbol, Order]:
    """What a transpose of `data` amounts to: where `data` is a transpose itself, one of what that one reads."""
    inner = order_of(data)
    return (data, tuple(order)) if inner is None else (data.inputs[0], tuple(inner[axis] for axis in order))


def transposed(node: ModelNode, data: Symbol, axes: Sequence[int], suffix: str = "") -> Symbol:
    """`data` with its axes in another order. A transpose of a transpose is made one, or none if it undoes it."""
    data, order = through(data, axes)
    if order == tuple(range(data.type.rank)):
        return data
    return node.apply(Transpose(axes=order), [data], suffix)


def reordered(node: ModelNode, axes: Sequence[int], make: Callable[[str], Symbol]) -> Symbol:
    """What `make` gives, its channels first, with its axes in another order.

    make: is told the suffix of the name of what it makes.
    """
    if list(axes) == sorted(axes):
        return make("")
    return transposed(node, make("channels_first"), axes)


def is_nothing(order: Order) -> bool:
    return order == tuple(range(len(order)))


def _has_transposed_window(symbol: Symbol) -> bool:
    """Whether a window reads what a transpose gives, its border perhaps in between."""
    if not isinstance(symbol.operator, _WINDOWS):
        return False
    data = symbol.inputs[0]
    return order_of(data.inputs[0] if isinstance(data.operator, Pad) else data) is not None


def _before(
    symbol: Symbol,
    inputs: Sequence[Symbol],
    order: Order,
    builder: GraphBuilder,
    otherwise: Callable[[Symbol], Symbol | None],
) -> list[Symbol] | None:
    """The inputs before the transpose; None where one is neither transposed alike nor a parameter that can be."""
    if isinstance(symbol.operator, BatchNorm):
        # Its parameters are vectors along the channels, wherever those lie.
        return [inputs[0].inputs[0], *inputs[1:]] if order_of(inputs[0]) == order else None
    if isinstance(symbol.operator, Take):
        # Indices of one axis take the place of the axis that they index; of others they would move the rest.
        moves = order_of(inputs[0]) == order and inputs[1].type.rank == 1
        return [inputs[0].inputs[0], inputs[1]] if moves else None
    if isinstance(symbol.operator, Tile) and len(symbol.operator.reps) != len(order):
        return None
    if len(inputs) > 1 and isinstance(symbol.operator, LeakyReLU):
        return None
    found = [input_before(source, order, builder) or otherwise(source) for source in inputs]
    return [source for source in found if source is not None] if None not in found else None


def input_before(source: Symbol, order: Order, builder: GraphBuilder) -> Symbol | None:
    """What stands before a transpose for an operand behind it; None for data that is not transposed alike."""
    if order_of(source) == order:
        return source.inputs[0]
    value = builder.value(source)
    if value is None or value.ndim > len(order):
        return None
    if value.size == 1:
        return source
    aligned = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return builder.parameter(f"{source.name}_transposed", aligned.transpose(np.argsort(order)))


def _pad_width(operator: Pad, order: Order) -> tuple[int, ...]:
    return tuple(width for widths in _moved_back(operator.widths, order) for width in widths)


def _moved_back(values: Sequence[Any], order: Order) -> tuple[Any, ...]:
    """One value for each axis of transposed data, as they are for the data before the transpose."""
    return tuple(values[axis] for axis in np.argsort(order))


def _bounds(operator: Slice, order: Order) -> dict[str, tuple[int | None, ...]]:
    """begin, end and step of a slice before the transpose; axes that it leaves out stay whole."""
    given = {"begin": operator.begin, "end": operator.end, "step": operator.step}
    return {
        name: _moved_back((*values, *(None,) * (len(order) - len(values))), order) if values else ()
        for name, values in given.items()
    }


def _squeezed(symbol: Symbol, operator: Squeeze, data: Symbol, order: Order, builder: GraphBuilder) -> Symbol:
    """A squeeze before the transpose, and what is left of the transpose."""
    gone = [axis for axis in range(len(order)) if axis in operator.dropped(symbol.inputs[0].shape)]
    moved = builder.apply(Squeeze(axis=tuple(sorted(order[axis] for axis in gone))), [data], symbol.name)
    return _transposed_rest(symbol, moved, [order[axis] for axis in range(len(order)) if axis not in gone], builder)


def _reshaped(symbol: Symbol, data: Symbol, order: Order, builder: GraphBuilder) -> Symbol | None:
    """A reshape before a transpose that changes the order of no elements, since it moves axes of length 1 only."""
    moved = [axis for axis in order if data.shape[axis] != 1]
    if order[0] != 0 or moved != sorted(moved) or symbol.operator.infer(data.type).shape != symbol.shape:
        return None
    return builder.apply(symbol.operator, [data], symbol.name)


def _reduced(
    symbol: Symbol, operator: Sum | Mean | Max | Min, data: Symbol, order: Order, builder: GraphBuilder
) -> Symbol:
    """A reduction before the transpose, and what is left of the transpose."""
    reduced = operator.axes(len(order))
    axes = tuple(sorted(order[axis] for axis in reduced))
    moved = builder.apply(replace(operator, axis=axes, exclude=False), [data], symbol.name)
    kept = order if operator.keepdims else [order[axis] for axis in range(len(order)) if axis not in reduced]
    return _transposed_rest(symbol, moved, kept, builder)


def _transposed_rest(symbol: Symbol, moved: Symbol, kept: Sequence[int], builder: GraphBuilder) -> Symbol:
    """What is left of a transpose behind an operator that kept these of its axes."""
    rest = tuple(sorted(kept).index(axis) for axis in kept)
    return moved if is_nothing(rest) else builder.apply(Transpose(axes=rest), [moved], f"{symbol.name}_transposed")
