"""How much a graph makes of what it is given, held to a limit before anything is allocated."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.symbol.graph import Graph
from mrt.symbol.limits import ELEMENTS_VARIABLE, element_limit


def check_sizes(graph: Graph) -> None:
    """GraphError naming the first symbol that makes more elements than the inputs and parameters explain.

    See `mrt.symbol.limits`: a file of a few bytes may ask for terabytes.
    """
    given = sum(symbol.type.size for symbol in graph.by_name.values() if symbol.is_variable)
    limit = element_limit(given)
    for symbol in graph.operators:
        size = max(symbol.type.size, symbol.operator.working_size(*(source.type for source in symbol.inputs)))
        if size > limit:
            raise GraphError(
                f"{symbol.name} ({symbol.op}): {size} elements would be made, {limit} are allowed for the {given} of "
                f"inputs and parameters; set {ELEMENTS_VARIABLE} to allow more"
            )
