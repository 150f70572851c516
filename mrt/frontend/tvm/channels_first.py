"""Channels-last networks become channels-first ones: the transposes around their windows are moved out of the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mrt.symbol import Graph, GraphBuilder, Operator, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.arrangement import UpSampling
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.normalization import BatchNorm, LogSoftmax, Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.region import UNARY
from mrt.symbol.operators.selection import Min
from mrt.symbol.operators.transform import Concat, Transpose

Order = tuple[int, ...]
"""The axes of a transpose: axis i of what it gives is axis order[i] of what it reads."""

_Rule = Callable[[Any, Order], Operator]
"""An operator that reads transposed data, as it is on the data before the transpose."""

_UNCHANGED = frozenset(
    {
        *UNARY,
        *("Dropout", "_copy", "add_n", "elemwise_add", "elemwise_sub", "elemwise_mul", "_maximum", "_minimum"),
        *("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_maximum", "broadcast_minimum"),
    }
)
"""Operators to which the order of the axes does not matter."""
_RULES: dict[type[Operator], _Rule] = {
    BatchNorm: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Concat: lambda operator, order: replace(operator, dim=order[operator.dim]),
    Pad: lambda operator, order: replace(operator, pad_width=_pad_width(operator, order)),
    LogSoftmax: lambda operator, order: replace(operator, axis=order[operator.axis]),
    Softmax: lambda operator, order: replace(operator, axis=order[operator.axis]),
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
            return data if _is_nothing(order) else builder.apply(Transpose(axes=order), [data], symbol.name)
        found = next(filter(None, map(order_of, inputs)), None)
        if found is None:
            return None
        if isinstance(symbol.operator, (Sum, Mean, Max, Min)):
            return _reduced(symbol, symbol.operator, inputs[0].inputs[0], found, builder)
        rule = _rule_of(symbol.operator)
        data_before = _before(symbol, inputs, found, builder) if rule is not None else None
        if rule is None or data_before is None:
            return None
        moved = builder.apply(rule(symbol.operator, found), data_before, symbol.name)
        return builder.apply(Transpose(axes=found), [moved], f"{symbol.name}_transposed")

    return rewrite_graph(graph, rewrite)


def _rule_of(operator: Operator) -> _Rule | None:
    return (lambda same, order: same) if operator.op in _UNCHANGED else _RULES.get(type(operator))


def order_of(symbol: Symbol) -> Order | None:
    """The axes of a transpose, counted from the front; None for any other symbol."""
    return symbol.operator.order(symbol.type.rank) if isinstance(symbol.operator, Transpose) else None


def through(data: Symbol, order: Sequence[int]) -> tuple[Symbol, Order]:
    """What a transpose of `data` amounts to: where `data` is a transpose itself, one of what that one reads."""
    inner = order_of(data)
    return (data, tuple(order)) if inner is None else (data.inputs[0], tuple(inner[axis] for axis in order))


def _is_nothing(order: Order) -> bool:
    return order == tuple(range(len(order)))


def _has_transposed_window(symbol: Symbol) -> bool:
    return isinstance(symbol.operator, _WINDOWS) and order_of(symbol.inputs[0]) is not None


def _before(symbol: Symbol, inputs: Sequence[Symbol], order: Order, builder: GraphBuilder) -> list[Symbol] | None:
    """The inputs before the transpose; None where one is neither transposed alike nor a parameter that can be."""
    if isinstance(symbol.operator, BatchNorm):
        # Its parameters are vectors along the channels, wherever those lie.
        return [inputs[0].inputs[0], *inputs[1:]] if order_of(inputs[0]) == order else None
    if len(inputs) > 1 and isinstance(symbol.operator, LeakyReLU):
        return None
    found = [_input_before(source, order, builder) for source in inputs]
    return [source for source in found if source is not None] if None not in found else None


def _input_before(source: Symbol, order: Order, builder: GraphBuilder) -> Symbol | None:
    if order_of(source) == order:
        return source.inputs[0]
    value = builder.value(source)
    if value is None or value.ndim > len(order):
        return None
    aligned = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return builder.parameter(f"{source.name}_transposed", aligned.transpose(np.argsort(order)))


def _pad_width(operator: Pad, order: Order) -> tuple[int, ...]:
    widths = operator.widths
    return tuple(width for axis in np.argsort(order) for width in widths[axis])


def _reduced(
    symbol: Symbol, operator: Sum | Mean | Max | Min, data: Symbol, order: Order, builder: GraphBuilder
) -> Symbol:
    """A reduction before the transpose, and what is left of the transpose."""
    reduced = operator.axes(len(order))
    axes = tuple(sorted(order[axis] for axis in reduced))
    moved = builder.apply(replace(operator, axis=axes, exclude=False), [data], symbol.name)
    kept = [order[axis] for axis in range(len(order)) if axis not in reduced]
    rest = order if operator.keepdims else tuple(sorted(kept).index(axis) for axis in kept)
    return moved if _is_nothing(rest) else builder.apply(Transpose(axes=rest), [moved], f"{symbol.name}_transposed")
