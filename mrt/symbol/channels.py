"""Which axis of an activation counts its channels."""

from __future__ import annotations

from mrt.symbol.graph import Graph
from mrt.symbol.symbol import Symbol


def channel_axes(graph: Graph) -> dict[str, int]:
    """The channel axis of every symbol with at least one axis, by name.

    It is the axis that the first layer behind it sums over, looking through operators that keep it apart or at least
    keep the rank; axis 1 where no layer follows, or the only axis.
    """
    found: dict[str, int] = {}
    for symbol in reversed((*graph.inputs, *graph.symbols)):
        rank = symbol.type.rank
        if rank == 0:
            continue
        axis = min(1, rank - 1)
        for consumer in graph.consumers[symbol]:
            summed = consumer.operator.data_channel_axis(rank)
            if summed is not None and consumer.inputs[0] is symbol:
                axis = summed
                break
            through = _axis_before(consumer, symbol, found.get(consumer.name))
            if through not in (None, axis):
                axis = through
                break
        found[symbol.name] = axis
    return found


def _axis_before(consumer: Symbol, symbol: Symbol, behind: int | None) -> int | None:
    """The axis of `symbol` that becomes axis `behind` of a consumer; the longest if there are several."""
    if behind is None:
        return None
    types, index = [source.type for source in consumer.inputs], consumer.inputs.index(symbol)
    axes = [a for a in range(1, symbol.type.rank) if consumer.operator.kept_axis(a, index, *types) == behind]
    if axes:
        return max(axes, key=lambda axis: symbol.shape[axis])
    return behind if consumer.type.rank == symbol.type.rank else None
