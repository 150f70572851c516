"""Which axis of an activation counts its channels."""

from __future__ import annotations

from mrt.symbol.graph import Graph


def channel_axes(graph: Graph) -> dict[str, int]:
    """The channel axis of every symbol with at least one axis, by name.

    It is the axis that the first layer behind it sums over, looking through operators that keep the rank; axis 1 where
    no layer follows, or the only axis.
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
            if consumer.type.rank == rank and found[consumer.name] != axis:
                axis = found[consumer.name]
                break
        found[symbol.name] = axis
    return found
