"""Ranges that need no observing: those of the channels that an operator makes of channels which are observed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from mrt.calibration.channels import ChannelObserver
from mrt.errors import DataError
from mrt.symbol import Array, Graph, Interval, Symbol


def find_derived(graph: Graph, axes: Mapping[Symbol, int], needed: Collection[Symbol]) -> dict[Symbol, Symbol]:
    """The symbols whose channels' ranges follow from those of another, with that other; each after the one it needs.

    An operator such as a bias or a rectifier maps the ends of a channel to the ends of what it makes. axes: of the
    symbols whose channels are asked for, the axis that counts them. needed: those that must be observed all the same.
    """
    found = {}
    for symbol in graph.operators:
        if symbol not in axes or symbol in needed or not symbol.operator.attains_bounds:
            continue
        computed = [source for source in symbol.inputs if graph.value(source) is None]
        if len(computed) != 1 or axes.get(computed[0]) != axes[symbol] or not computed[0].type.size:
            continue
        ends = _ends_behind(graph, symbol, computed[0], np.zeros(1), np.zeros(1), axes[symbol])
        if ends is not None:
            found[symbol] = computed[0]
    return found


def derive(graph: Graph, symbol: Symbol, source: Symbol, seen: ChannelObserver, axis: int) -> ChannelObserver:
    """What observing `symbol` would have given, from what was seen of `source`; DataError where it is not finite.

    The ends are computed in float64 and rounded once, which is what float32 gives: of 24-bit factors and terms, 53 bits
    hold enough for the second rounding to change nothing (S. A. Figueroa, "When is Double Rounding Innocuous?", 1995).
    """
    ends = _ends_behind(graph, symbol, source, seen.lo, seen.hi, axis)
    if ends is None:
        raise ValueError(f"{symbol.name}: its channels do not follow from those of {source.name}")
    with np.errstate(over="ignore"):
        lo, hi = (end.astype(symbol.dtype).astype(np.float64) + 0.0 for end in ends)
    if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
        raise DataError(f"{symbol.name} ({symbol.type}) holds infinity; finite values are needed")
    samples = seen.count * source.shape[axis] // math.prod(source.shape[1:])
    return replace(seen, lo=lo, hi=hi, count=samples * math.prod(symbol.shape[1:]) // symbol.shape[axis])


def _ends_behind(
    graph: Graph, symbol: Symbol, source: Symbol, lo: Array, hi: Array, axis: int
) -> tuple[Array, Array] | None:
    """The ends of each channel of `symbol` for those of `source`; None where a channel's elements have others each."""
    if (source.type.rank, source.shape[axis], source.dtype) != (symbol.type.rank, symbol.shape[axis], symbol.dtype):
        return None
    shape = tuple(-1 if a == axis else 1 for a in range(source.type.rank))
    data = Interval(lo.reshape(shape), hi.reshape(shape), source.shape)
    given = [data if s is source else Interval.constant(np.asarray(graph.value(s))) for s in symbol.inputs]
    bounds = symbol.operator.bounds(*given)
    if any(end.size != end.shape[axis] for end in (bounds.lo, bounds.hi)):
        return None
    lo, hi = (np.broadcast_to(end.reshape(-1), symbol.shape[axis]) for end in (bounds.lo, bounds.hi))
    return lo, hi
