"""Several graphs as one, side by side, and what it is fed with."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.symbol import Array, Graph, GraphBuilder, Symbol


def joined(graphs: Sequence[Graph]) -> Graph:
    """One graph of several, side by side; every name gets the number of its graph in front."""
    builder = GraphBuilder()
    outputs: list[Symbol] = []
    for number, graph in enumerate(graphs):
        made: dict[Symbol, Symbol] = {s: builder.input(f"{number}_{s.name}", s.type) for s in graph.inputs}
        for symbol in graph.symbols:
            name, value = f"{number}_{symbol.name}", graph.value(symbol)
            if value is not None:
                made[symbol] = builder.parameter(name, value)
            elif symbol not in made:
                made[symbol] = builder.apply(symbol.operator, [made[source] for source in symbol.inputs], name)
        outputs += [made[symbol] for symbol in graph.outputs]
    return builder.graph(outputs)


def feeds_of_all(samples: Sequence[Sequence[dict[str, Array]]]) -> list[dict[str, Array]]:
    """The feeds of the joined graph: the first ones of all graphs together, then the second ones, and so on."""
    return [
        {f"{number}_{name}": value for number, feeds in enumerate(turn) for name, value in feeds.items()}
        for turn in zip(*samples, strict=True)
    ]
