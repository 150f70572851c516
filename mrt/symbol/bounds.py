"""Bounds analysis: the interval of every tensor of an integer graph, derived operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mrt.errors import GraphError, QuantizationError
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Interval
from mrt.symbol.symbol import Symbol

_BOUNDS = 2**25
"""How many numbers the bounds of a graph's operators may take, however few its inputs and parameters hold."""
_BOUNDS_PER_ELEMENT = 64
"""How many they may take for each element that the graph is given."""


def analyse_bounds(graph: Graph, inputs: Mapping[str, Interval]) -> dict[str, Interval]:
    """The interval of every symbol by name, from those of the graph's inputs.

    Raises QuantizationError naming the first input whose interval is empty or does not fit its dtype, or the first
    symbol that needs more than 32 bits, whose storage dtype is too narrow for its bounds, or with which the bounds
    take more memory than what the graph is given explains.
    """
    found = {symbol.name: _input_bounds(symbol, inputs) for symbol in graph.inputs}
    given = sum(symbol.type.size for symbol in graph.by_name.values() if symbol.is_variable)
    free = max(_BOUNDS, _BOUNDS_PER_ELEMENT * given)
    for symbol in graph.symbols:
        if not symbol.is_variable:
            bounds = bounds_of(symbol, [found[source.name] for source in symbol.inputs])
            found[symbol.name] = bounds
            free -= bounds.lo.size + bounds.hi.size
            if free < 0:
                raise QuantizationError(
                    f"{symbol.name} ({symbol.op}): the bounds of the tensors up to here take more numbers than a graph "
                    f"with {given} elements of inputs and parameters needs; repeat constants less"
                )
        elif symbol.name not in found:
            found[symbol.name] = Interval.constant(graph.parameters[symbol.name])
    return found


def _input_bounds(symbol: Symbol, inputs: Mapping[str, Interval]) -> Interval:
    """The interval stated for an input; QuantizationError where it is missing, empty, or wider than its dtype."""
    if symbol.name not in inputs:
        raise QuantizationError(f"input {symbol.name} has no range; [lo, hi] is needed")
    interval = inputs[symbol.name]
    if symbol.dtype not in DTYPE_RANGES:
        return interval
    lo, hi = DTYPE_RANGES[symbol.dtype]
    if interval.shape != symbol.shape or not (interval.lo <= interval.hi).all():
        raise QuantizationError(f"input {symbol.name} of {symbol.type} has the range {interval}; lo <= hi is needed")
    if interval.min < lo or interval.max > hi:
        raise QuantizationError(f"input {symbol.name} has the range {interval}; {symbol.dtype} holds [{lo}, {hi}]")
    return interval


def bounds_of(symbol: Symbol, inputs: Sequence[Interval]) -> Interval:
    """The proven interval of one integer symbol; QuantizationError beyond 32 bits or beyond its dtype."""
    if symbol.dtype not in DTYPE_RANGES:
        raise QuantizationError(
            f"{symbol.name} ({symbol.op}): it is {symbol.dtype}, {', '.join(DTYPE_RANGES)} are allowed; cast its inputs"
        )
    try:
        result = symbol.operator.bounds(*inputs)
        intermediates = symbol.operator.intermediates(*inputs)
    except GraphError as error:
        raise GraphError(f"{symbol.name} ({symbol.op}): {error}") from None
    for interval in (result, *intermediates):
        if not interval.fits_int32:
            raise QuantizationError(
                f"{symbol.name} ({symbol.op}): the accumulator needs {interval.bits} bits, 32 are allowed; "
                f"lower activation.bits or weight.bits for {symbol.origin}"
            )
    lo, hi = DTYPE_RANGES[symbol.dtype]
    if result.min < lo or result.max > hi:
        raise QuantizationError(f"{symbol.name} ({symbol.op}): {result} does not fit its dtype {symbol.dtype}")
    # What is clipped has the same ends everywhere again, though a constant differed by position before.
    return result.compact()


DTYPE_RANGES = {
    "bool": (0, 1),
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
}
"""The dtypes of integer graphs and what they hold."""
