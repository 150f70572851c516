"""Ranges that need no observing: those of the channels that an operator makes of channels which are observed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from mrt.calibration.channels import ChannelObserver
from mrt.errors import DataError
from mrt.symbol import Array, Graph, Interval, Symbol


def find_derived(
    graph: Graph, asked: Collection[Symbol], axes: Mapping[Symbol, int], needed: Collection[Symbol]
) -> dict[Symbol, Symbol]:
    """The symbols whose ranges follow from those of another, with that other; each after the one it needs.

    An operator such as a bias or a rectifier maps the ends of a channel to the ends of what it makes, and one that only
    moves elements keeps the ends of them all. asked: whose ranges are asked for. axes: of those whose channels are, the
    axis that counts them. needed: those that must be observed all the same.
    """
    found = {}
    for symbol in graph.operators:
        computed = [source for source in symbol.inputs if graph.value(source) is None]
        if symbol not in asked or symbol in needed or len(computed) != 1 or computed[0] not in asked:
            continue
        if computed[0].type.size and _follows(graph, symbol, computed[0], axes):
            found[symbol] = computed[0]
    return found


def _follows(graph: Graph, symbol: Symbol, source: Symbol, axes: Mapping[Symbol, int]) -> bool:
    if symbol not in axes:
        return symbol.operator.keeps_elements
    if source not in axes:
        return False
    if symbol.operator.keeps_elements:
        kept = symbol.operator.kept_axis(axes[source], 0, source.type)
        return kept == axes[symbol] and source.shape[axes[source]] == symbol.shape[kept]
    if not symbol.operator.attains_bounds or axes[source] != axes[symbol]:
        return False
    return _ends_behind(graph, symbol, source, np.zeros(1), np.zeros(1), axes[symbol]) is not None


def derive(
    graph: Graph, symbol: Symbol, source: Symbol, seen: ChannelObserver, axes: Mapping[Symbol, int]
) -> ChannelObserver:
    """What observing `symbol` would have given, from what was seen of `source`; DataError where it is not finite.

    The ends are computed in float64 and rounded once, which is what float32 gives: of 24-bit factors and terms, 53 bits
    hold enough for the second rounding to change nothing (S. A. Figueroa, "When is Double Rounding Innocuous?", 1995).
    """
    if symbol.operator.keeps_elements:
        return seen
    axis = axes[symbol]
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
