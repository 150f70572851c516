"""Weights of layers as rows, and rows as weights."""

from __future__ import annotations

from mrt.errors import QuantizationError
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.layer import Layer


def has_rows(symbol: Symbol) -> bool:
    """Whether a symbol is a layer whose weight has rows, one for each output channel."""
    return isinstance(symbol.operator, Layer)


def rows_of(layer: Symbol, weight: Array) -> Array:
    """A weight as (O, I, taps), I the columns that an output channel is summed over."""
    rows = _operator(layer).rows(weight)
    return rows.reshape(*rows.shape[:2], -1)


def scaled_weight(layer: Symbol, weight: Array, of_rows: Array, of_columns: Array) -> Array:
    """A weight whose rows are divided by (O,) and whose columns are multiplied by (columns,) factors."""
    operator, groups = _operator(layer), input_groups(layer)
    rows = operator.rows(weight)
    inward = of_columns.reshape(groups, -1).repeat(len(rows) // groups, axis=0)
    by = (inward / of_rows[:, None]).reshape(*rows.shape[:2], *(1,) * (rows.ndim - 2))
    return operator.from_rows((rows * by).astype(weight.dtype))


def columns_in(layer: Symbol, weight: Array) -> int:
    """How many columns a weight has: channels, or features, that its layer reads."""
    columns: int = _operator(layer).rows(weight).shape[1]
    return columns * input_groups(layer)


def input_groups(layer: Symbol) -> int:
    """How many groups of channels are summed apart."""
    return int(getattr(layer.operator, "num_group", 1))


def _operator(layer: Symbol) -> Layer:
    if not isinstance(layer.operator, Layer):
        raise QuantizationError(
            f"{layer.name} ({layer.op}) has a weight, but its rows are not known; derive its record from Layer"
        )
    return layer.operator
