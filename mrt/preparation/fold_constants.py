"""Evaluates what depends on parameters alone, and joins constants that follow one another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.errors import DataError
from mrt.preparation.constants import (
    add_constant,
    feeds_only_one,
    multiply_by_constant,
    operation_with_constant,
    representable,
)
from mrt.preparation.quantized_constants import is_quantized_weight
from mrt.symbol import Array, Graph, GraphBuilder, Property, RewritePass, Symbol
from mrt.symbol.graph import evaluate_symbol
from mrt.symbol.operation import Operation


def _constant_operators(graph: Graph) -> str:
    for symbol in graph.operators:
        if all(graph.value(source) is not None for source in symbol.inputs) and not is_quantized_weight(graph, symbol):
            return f"{symbol.name} ({symbol.op}) depends on parameters alone"
    return ""


NO_CONSTANT_OPERATORS = Property("every operator depends on an input or gives a quantized weight", _constant_operators)


@dataclass(frozen=True)
class FoldConstants(RewritePass):
    """Leaves operators only where something depends on the graph's inputs.

    1. A symbol whose inputs are all parameters: the parameter that it evaluates to. NaN or infinity: DataError. The
       dequantized weight of a layer stays, so that its integers are known.
    2. x * a * b and x + a + b, the first of the two read by the second only: x * (a b) and x + (a + b), where the
       joint constant is no larger than one of them.
    3. (x + a) * b, likewise: x * b + a b, so that any row of both ends as one product and one sum.
    4. x * 1 and x + 0: x, where the shape stays.
    """

    ensures = (NO_CONSTANT_OPERATORS,)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        values = [builder.value(source) for source in inputs]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            if is_quantized_weight(graph, symbol):
                return None
            return builder.parameter(symbol.name, _evaluated(symbol, known))
        operation = operation_with_constant(symbol)
        if operation is None or values[1] is None:
            return None
        neutral = 1 if operation is Operation.MULTIPLY else 0
        if symbol.type == inputs[0].type and np.all(values[1] == neutral):
            return inputs[0]
        if not feeds_only_one(graph, symbol.inputs[0]):
            return None
        return _joined(symbol, inputs[0], values[1], builder)


def _evaluated(symbol: Symbol, values: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        value = evaluate_symbol(symbol, values)
    if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
        raise DataError(
            f"{symbol.name} ({symbol.op}) depends on parameters alone and gives NaN or infinity; "
            f"look at {', '.join(source.name for source in symbol.inputs)}"
        )
    return value


def _joined(symbol: Symbol, inner: Symbol, second: Array, builder: GraphBuilder) -> Symbol | None:
    """Rules 2 and 3, `inner` being what the first of the two operators has become."""
    inner_operation = operation_with_constant(inner)
    if inner_operation is None or not symbol.type.is_float:
        return None
    first = builder.value(inner.inputs[1])
    if first is None or builder.value(inner.inputs[0]) is not None:
        return None
    is_sum, inner_is_product = symbol.operator.operation is Operation.ADD, inner_operation is Operation.MULTIPLY
    if is_sum and inner_is_product:
        return None
    value = _combined(first, second, is_sum, symbol.dtype)
    if value is None:
        return None
    data, name, constant = inner.inputs[0], symbol.name, f"{symbol.name}_constant"
    if is_sum:
        return add_constant(builder, data, value, name, constant)
    if inner_is_product:
        return multiply_by_constant(builder, data, value, name, constant)
    scaled = _multiplied(data, second.astype(np.float64), f"{name}_scaled", builder)
    return add_constant(builder, scaled, value, name, constant)


def _multiplied(data: Symbol, value: Array, name: str, builder: GraphBuilder) -> Symbol:
    """data * value, joined with the factor that `data` may already end in."""
    is_product = operation_with_constant(data) is Operation.MULTIPLY
    if is_product and (first := builder.value(data.inputs[1])) is not None:
        joint = _combined(first, value, False, data.dtype)
        if joint is not None:
            return multiply_by_constant(builder, data.inputs[0], joint, name, f"{name}_constant")
    return multiply_by_constant(builder, data, value, name, f"{name}_constant")


def _combined(first: Array, second: Array, is_sum: bool, dtype: str) -> Array | None:
    """a + b or a * b in float64; None where it is larger than both or not finite in `dtype`."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    if a.ndim != b.ndim or np.broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return None
    value = a + b if is_sum else a * b
    return value if representable(value, dtype) else None
