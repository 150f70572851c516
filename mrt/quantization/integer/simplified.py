"""The integer graph as it was expanded, with its elementwise chains simplified."""

from __future__ import annotations

from dataclasses import replace

from mrt.collector import paused_collector
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.simplification import SimplifyChains
from mrt.symbol import Interval
from mrt.symbol.bounds import analyse_bounds


@paused_collector()
def simplified(integer: IntegerGraph) -> IntegerGraph:
    """The same integers by fewer operators; notes say which rules did what, and why others did not.

    Scales and zero points are those of the tensors that are left: a symbol that keeps its name keeps its values.
    """
    intervals = {symbol.name: Interval.of(target.lo, target.hi, symbol.shape) for symbol, target in integer.inputs}
    result = SimplifyChains(analyse_bounds(integer.graph, intervals)).run(integer.graph)
    left = result.graph.by_name
    return replace(
        integer,
        graph=result.graph,
        outputs=tuple(replace(q, symbol=s) for q, s in zip(integer.outputs, result.graph.outputs, strict=True)),
        scales={name: scale for name, scale in integer.scales.items() if name in left},
        zero_points={name: zero for name, zero in integer.zero_points.items() if name in left},
        notes=(*integer.notes, *result.notes),
    )
