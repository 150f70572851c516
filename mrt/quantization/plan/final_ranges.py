"""Room beyond the calibrated ranges where bits are plenty: of the outputs, and of what functions at the end read.

An output has 16 bits, twice those of other tensors. Data that goes beyond what calibration saw would saturate there,
although nothing saturates in the layer before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mrt.calibration import Range
from mrt.quantization.expansion import expansion_of
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.states import states_of

BOUNDED = 4.0
"""How many times as much room there is where that is all that a function gives, such as the [0, 1] of a sigmoid: with
a room of 4, 12 of 16 bits are left for what was calibrated."""
ARGUMENT_BITS = 12
"""The bits of what a function at the end reads, so that a room of 4 leaves it two more than the usual 8."""
EVERYTHING = 1e30
"""What stands for no bound."""


def final_ranges(graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig) -> dict[str, Range]:
    """The ranges, `output.room` times as wide as calibrated, of the outputs and of what tables read that give them."""
    room = config.output.room
    if room == 1.0:
        return {}
    found = {symbol.name: _wider(symbol, graph, ranges[symbol.name], room) for symbol in _finals(graph)}
    for symbol in final_arguments(graph, config):
        found[symbol.name] = _widened(ranges[symbol.name], room)
    return found


def final_arguments(graph: Graph, config: QuantizationConfig) -> frozenset[Symbol]:
    """What nothing reads but tables whose entries are outputs; none where outputs have no room."""
    if config.output.room == 1.0:
        return frozenset()
    tables = [symbol for symbol in _finals(graph) if _is_table(symbol)]
    sources = {symbol.inputs[0] for symbol in tables if not symbol.inputs[0].is_variable}
    return frozenset(s for s in sources if s not in graph.outputs and set(graph.consumers[s]) <= set(tables))


def _finals(graph: Graph) -> list[Symbol]:
    """The float tensors that are outputs, or that only move to one or are joined to it, and that nothing else reads.

    What moves or joins a tensor that is read elsewhere is none: it has that tensor's bits, and none to spare.
    """
    found: dict[Symbol, None] = {}
    kept = {state.output for state in states_of(graph)}
    pending = [symbol for symbol in graph.outputs if not graph.consumers[symbol] and symbol not in kept]
    while pending:
        symbol = pending.pop()
        if symbol in found or symbol.is_variable or not symbol.type.is_float:
            continue
        found[symbol] = None
        for source in _moved(symbol):
            if source not in graph.outputs and all(reader in found for reader in graph.consumers[source]):
                pending.append(source)
    while shared := [symbol for symbol in found if _shares(symbol, graph, found)]:
        for symbol in shared:
            del found[symbol]
    return list(found)


def _shares(symbol: Symbol, graph: Graph, finals: Collection[Symbol]) -> bool:
    """Whether a tensor has the integers of one that is none of `finals`, or is read by such a one."""
    taken = any(source not in finals and graph.value(source) is None for source in _moved(symbol))
    return taken or any(reader not in finals for reader in graph.consumers[symbol])


def _moved(symbol: Symbol) -> Sequence[Symbol]:
    """What an operator gives as it is, moved or joined."""
    is_joined = symbol.operator.joined_axis(symbol.type.rank) is not None
    return symbol.inputs if symbol.operator.keeps_scale or is_joined else ()


def _is_table(symbol: Symbol) -> bool:
    return len(symbol.inputs) == 1 and not symbol.operator.keeps_scale and expansion_of(symbol).reach is not None


def _wider(symbol: Symbol, graph: Graph, calibrated: Range, room: float) -> Range:
    """With room, up to all that the operator can give, whatever it reads."""
    everything = [Interval.of(-EVERYTHING, EVERYTHING, source.shape) for source in symbol.inputs]
    values = [graph.value(source) for source in symbol.inputs]
    known = [all_ if v is None else Interval.constant(v) for all_, v in zip(everything, values, strict=True)]
    bounds = symbol.operator.bounds(*known)
    lo, hi = float(bounds.min), float(bounds.max)
    is_bounded = max(abs(lo), abs(hi)) < EVERYTHING
    wide = _widened(calibrated, BOUNDED * room if is_bounded else room)
    return Range(min(max(wide.lo, lo), calibrated.lo), max(min(wide.hi, hi), calibrated.hi))


def _widened(found: Range, room: float) -> Range:
    """A range that reaches `room` times as far from zero on either side as it did on the farther one."""
    return Range(-room * found.magnitude, room * found.magnitude)
