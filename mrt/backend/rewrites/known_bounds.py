"""What the integers of a graph that is compiled are known to be: proven bounds, or else what their dtype holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mrt.errors import MRTError
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.bounds import DTYPE_RANGES, bounds_of
from mrt.symbol.operators.integer import Quantize
from mrt.symbol.quantized_tensor import TensorQuantization

Bounds = Mapping[str, Interval]
"""Intervals by the name of the tensor."""
NOTHING: Bounds = {}


def bounds_of_inputs(inputs: Sequence[TensorQuantization]) -> dict[str, Interval]:
    """The intervals of the inputs of an integer graph, which a module checks or clips what it is given to."""
    return {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in inputs}


def known_bounds(graph: Graph, known: Bounds) -> dict[str, Interval]:
    """An interval for every tensor of a graph, from those that are known already, such as of its inputs.

    A tensor of floats, one that is computed from floats, and one whose bounds do not fit 32 bits is known by its dtype
    only. A name in `known` must stand for the same values as there; it is not asked for floats. A parameter's interval
    stays the same object, which keeps what was computed of it.
    """
    found: dict[str, Interval] = {}
    for symbol in graph.symbols:
        value, held = graph.value(symbol), known.get(symbol.name)
        if value is not None and value.size:
            found[symbol.name] = held if held is not None and held.known is value else Interval.constant(value)
        elif held is None or symbol.dtype not in DTYPE_RANGES:
            found[symbol.name] = _bounds(symbol, found)
        else:
            found[symbol.name] = held
    return found


def _bounds(symbol: Symbol, found: Bounds) -> Interval:
    if not symbol.is_variable and symbol.dtype in DTYPE_RANGES and _reads_integers(symbol):
        try:
            return bounds_of(symbol, [found[source.name] for source in symbol.inputs])
        except MRTError:  # whatever the integers of this dtype may be, the operator does not bound them to 32 bits
            pass
    return _of_dtype(symbol)


def _reads_integers(symbol: Symbol) -> bool:
    """Whether the bounds follow from those of integers, or, as the quantization of floats does, from none."""
    return isinstance(symbol.operator, Quantize) or all(source.dtype in DTYPE_RANGES for source in symbol.inputs)


def _of_dtype(symbol: Symbol) -> Interval:
    if symbol.type.is_float:
        return Interval.of(-np.inf, np.inf, symbol.shape)
    if symbol.dtype in DTYPE_RANGES:
        return Interval.of(*DTYPE_RANGES[symbol.dtype], symbol.shape)
    limits = np.iinfo(symbol.dtype)
    return Interval.of(int(limits.min), int(limits.max), symbol.shape)
