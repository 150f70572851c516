"""Brings constants that trained quantization rounds to one form: integers, a scale and a zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.preparation.constants import operation_with_constant
from mrt.symbol import Array, Graph, GraphBuilder, RewritePass, Symbol
from mrt.symbol.grid import RESOLUTION, compact, ranked, snapped
from mrt.symbol.operation import Operation
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Cast, Dequantize
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.types import narrowest_dtype


def is_quantized_weight(graph: Graph, symbol: Symbol) -> bool:
    """Whether a symbol dequantizes a parameter that a layer, or a matrix product, reads as its weight."""
    is_constant = all(graph.value(source) is not None for source in symbol.inputs)
    if not isinstance(symbol.operator, Dequantize) or not is_constant:
        return False
    return any(
        isinstance(reader.operator, BatchDot)
        or (reader.operator.weight_channel_axis is not None and reader.inputs.index(symbol) == 1)
        for reader in graph.consumers[symbol]
    )


@dataclass(frozen=True)
class _Integers:
    """real = scale * (integers - zero_point); scale float64, zero_point int64, of the rank of the integers."""

    integers: Array
    scale: Array
    zero_point: Array


_DENOMINATORS = range(1, 2**7)
_FINEST = 2**14
"""The denominator of factors that are no multiples of any of those: they are off by 2^-15 at most."""


@dataclass(frozen=True)
class QuantizedConstants(RewritePass):
    """Leaves `dequantize` of an integer parameter where a constant was quantized, whatever wrote it.

    1. FakeQuantize of a parameter: its levels, with the scale and the zero point of its output. A zero point that lies
       half-way between integers is one of integers twice as large, at half the scale. Any other that is no integer is
       rounded among integers of 16 bits, as many times larger as these allow.
    2. A Cast to float of an integer parameter: scale 1, zero point 0.
    3. What moves the elements of such a constant: the integers moved, with their scales.
    4. Its product with a constant that has no zero: the scale multiplied, and the integers turned round where that is
       negative.
    5. The factors of an interpolation, in a network that brings quantizers: integers over a common denominator, as
       exact as these can be, since nothing in the network rounds them.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        values = [builder.value(source) for source in inputs]
        match symbol.operator:
            case FakeQuantize():
                known = [value for value in values if value is not None]
                if len(known) < len(values):
                    return None
                return _dequantized(_levels(symbol.operator, known), symbol, builder)
            case Cast(dtype="float32") if values[0] is not None and values[0].dtype.kind in "iu":
                one = np.ones((1,) * values[0].ndim)
                return _dequantized(_Integers(values[0], one, one.astype(np.int64) * 0), symbol, builder)
            case FullyConnected() if values[1] is not None and symbol.operator.interpolates(values[1]):
                return _with_fractions(graph, symbol, inputs[0], values[1], builder)
        source = _quantized(inputs[0], builder)
        if source is None:
            return None
        if symbol.operator.keeps_scale and len(inputs) == 1:
            return _dequantized(_moved(symbol, source), symbol, builder)
        is_product = operation_with_constant(symbol) is Operation.MULTIPLY
        if is_product and values[1] is not None and values[1].all():
            return _scaled(source, values[1], symbol, builder)
        return None


def _with_fractions(graph: Graph, symbol: Symbol, data: Symbol, factors: Array, builder: GraphBuilder) -> Symbol | None:
    """An interpolation whose factors are integers over a denominator; None where the network brings no quantizers."""
    if not any(other.operator.is_trained_quantizer for other in graph.operators):
        return None
    factors = factors.astype(np.float64)
    exact = (n for n in _DENOMINATORS if abs(factors * n - np.rint(factors * n)).max() <= n * RESOLUTION)
    denominator = next(exact, _FINEST)
    integers = np.rint(factors * denominator).astype(np.int64)
    one = np.ones((1, 1))
    found = _Integers(integers, one / denominator, one.astype(np.int64) * 0)
    weight = _dequantized(found, symbol, builder, "_fractions")
    return builder.apply(symbol.operator, [data, weight], symbol.name, symbol.origin)


def _levels(operator: FakeQuantize, values: list[Array]) -> _Integers:
    """The integers of a constant, and what they stand for."""
    grid = operator.grid(values[1:], values[0].ndim)
    integers = grid.sign * (operator.level_of(*values) + grid.lo)
    most = max(1 << 15 - operator.levels.bit_length(), 1)
    for factor in (1, 2, most):
        zero_point = snapped(grid.zero_out * factor, operator.levels * factor)
        if factor == most or (zero_point == np.rint(zero_point)).all():
            break
    return _Integers(integers * factor, grid.step_out / factor, np.rint(zero_point).astype(np.int64))


def _quantized(symbol: Symbol, builder: GraphBuilder) -> _Integers | None:
    """What a symbol dequantizes, where that is a parameter."""
    if not isinstance(symbol.operator, Dequantize):
        return None
    values = [builder.value(source) for source in symbol.inputs]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    rank = symbol.type.rank
    integers, scale, zero_point = (ranked(value, rank) for value in known)
    return _Integers(integers, scale.astype(np.float64), zero_point.astype(np.int64))


def _moved(symbol: Symbol, source: _Integers) -> _Integers:
    shape = symbol.inputs[0].shape
    moved = [
        np.asarray(symbol.operator.evaluate(np.broadcast_to(value, shape)))
        for value in (source.integers, source.scale, source.zero_point)
    ]
    return _Integers(*moved)


def _scaled(source: _Integers, factor: Array, symbol: Symbol, builder: GraphBuilder) -> Symbol | None:
    if symbol.shape != source.integers.shape:
        return None
    factor = ranked(factor, symbol.type.rank)
    sign = np.sign(factor).astype(np.int64)
    found = _Integers(source.integers * sign, source.scale * np.abs(factor), source.zero_point * sign)
    return _dequantized(found, symbol, builder)


def _dequantized(found: _Integers, symbol: Symbol, builder: GraphBuilder, suffix: str = "") -> Symbol:
    """`found` as the symbol that takes the place of `symbol`, or belongs to it under its name with a suffix."""
    parameters = []
    for value, name in (
        (found.integers, "integers"),
        (compact(found.scale), "scale"),
        (found.zero_point, "zero_point"),
    ):
        if value.dtype.kind == "i" or value.dtype.kind == "u":
            value = value if name == "integers" else compact(value)
            value = value.astype(narrowest_dtype(int(value.min(initial=0)), int(value.max(initial=0))))
        parameters.append(builder.parameter(f"{symbol.name}{suffix}_{name}", value, symbol.origin))
    return builder.apply(Dequantize(), parameters, f"{symbol.name}{suffix}", symbol.origin)
