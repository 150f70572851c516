"""Bounds analysis: the interval of every tensor of an integer graph, derived operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mrt.errors import QuantizationError
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Interval
from mrt.symbol.symbol import Symbol


def analyse_bounds(graph: Graph, inputs: Mapping[str, Interval]) -> dict[str, Interval]:
    """The interval of every symbol by name, from those of the graph's inputs.

    Raises QuantizationError naming the first symbol that needs more than 32 bits, or whose storage dtype is too
    narrow for its bounds.
    """
    found: dict[str, Interval] = {}
    for symbol in graph.symbols:
        value = graph.value(symbol)
        if symbol.is_variable:
            found[symbol.name] = inputs[symbol.name] if value is None else Interval.constant(value)
        else:
            found[symbol.name] = bounds_of(symbol, [found[source.name] for source in symbol.inputs])
    return found


def bounds_of(symbol: Symbol, inputs: Sequence[Interval]) -> Interval:
    """The proven interval of one integer symbol; QuantizationError beyond 32 bits or beyond its dtype."""
    if symbol.dtype not in DTYPE_RANGES:
        raise QuantizationError(
            f"{symbol.name} ({symbol.op}): it is {symbol.dtype}, {', '.join(DTYPE_RANGES)} are allowed; cast its inputs"
        )
    result = symbol.operator.bounds(*inputs)
    for interval in (result, *symbol.operator.intermediates(*inputs)):
        if not interval.fits_int32:
            raise QuantizationError(
                f"{symbol.name} ({symbol.op}): the accumulator needs {interval.bits} bits, 32 are allowed; "
                f"lower activation.bits or weight.bits for {symbol.origin}"
            )
    lo, hi = DTYPE_RANGES[symbol.dtype]
    if result.min < lo or result.max > hi:
        raise QuantizationError(f"{symbol.name} ({symbol.op}): {result} does not fit its dtype {symbol.dtype}")
    return result


DTYPE_RANGES = {
    "bool": (0, 1),
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
}
"""The dtypes of integer graphs and what they hold."""
