"""The quantizers of states: an input and the output that it holds in the next call have one scale, met exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of
from mrt.quantization.integer.integer_graph import input_target
from mrt.quantization.options import ActivationConfig
from mrt.quantization.plan.facts import FactPass, Facts
from mrt.quantization.plan.own_quantizers import own_target
from mrt.quantization.quantizer import Target, symmetric_target
from mrt.quantization.remedies import given_integers
from mrt.symbol import Graph, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.states import State, is_cache, states_of


def state_ranges(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """One range for both ends of each state: what calibration saw of either, and the initial value."""
    found: dict[str, Range] = {}
    for state in states_of(graph):
        ends = [ranges[symbol.name] for symbol in (state.input, state.output)]
        lo = min(*(end.lo for end in ends), float(state.initial.min()))
        hi = max(*(end.hi for end in ends), float(state.initial.max()))
        found |= dict.fromkeys((state.input.name, state.output.name), Range(lo, hi))
    return found


def fixed_state_ranges(graph: Graph, fixed: Mapping[str, Target]) -> dict[str, Range]:
    """The ranges of the states whose next values trained quantization fixes, by their inputs."""
    ends = {state.name: fixed.get(state.output.name) for state in states_of(graph)}
    return {name: Range(*target.real_range) for name, target in ends.items() if target is not None}


def _targets(facts: Facts) -> dict[str, Target]:
    found: dict[str, Target] = {}
    for state in states_of(facts.graph):
        found |= dict.fromkeys((state.input.name, state.output.name), _target(state, facts))
    return found


def _target(state: State, facts: Facts) -> Target:
    """The quantizer of a state; the first of these that there is.

    1. What the network's own quantizers give what it holds next, with one scale.
    2. A symmetric one of the bits that are asked for it by name.
    3. Of a cache that is read in its narrow form alone, as by products: the quantizer of that, if it is symmetric and
       for the whole range. So each row is rounded once, and not all of it anew at each call. One with a zero point
       would be moved by it at each call, all of it.
    4. A symmetric one of the bits of an output: 16, so that what is kept from call to call is rounded finer than what
       is computed of it.

    The scale of 2 to 4 is a float32, and so real values go to its integers and back without a change.
    Raises QuantizationError where the configuration declares the integers of the state.
    """
    if state.name in facts.config.inputs:
        raise QuantizationError(
            f"{given_integers(state.name)} declares the integers of a state, which nobody gives: leave it out; an "
            f"override of activation.bits says how many bits a state has"
        )
    fixed = facts.fixed.get(state.output.name)
    if fixed is not None and fixed.groups is None:
        return replace(fixed, pinned=True)
    named = [symbol.name for symbol in (state.input, state.output) if facts.config.overrides_activation(symbol.name)]
    if not named and (read := _read_as(state, facts)) is not None:
        return replace(input_target(read), pinned=True)
    bits = facts.config.activation_of(named[0]).bits if named else facts.config.output.bits
    target = symmetric_target(facts.ranges[state.input.name].magnitude, bits, signed=True)
    return replace(input_target(target), pinned=True)


def _read_as(state: State, facts: Facts) -> Target | None:
    """The quantizer by which all that reads a cache takes it, if it is symmetric and for the whole range; else None.

    It is unsigned where nothing in the cache is ever negative.
    """
    graph, value = facts.graph, state.output.inputs[0]
    options = facts.options[value.name]
    if not is_cache(graph, state) or not isinstance(options, ActivationConfig) or not _is_read_narrow(state, graph):
        return None
    never_negative = facts.never_negative[value.name]
    read = own_target(graph, value, options, facts.ranges[value.name], never_negative)
    own = symmetric_target(facts.ranges[state.input.name].magnitude, options.bits, signed=not never_negative)
    return own if read == own else None


def _is_read_narrow(state: State, graph: Graph) -> bool:
    """Whether all that reads what a state holds next, or what only moves it, takes it in its narrow form."""
    moved, demands = [state.output.inputs[0]], list[Demand]()
    for source in moved:  # grows meanwhile
        if source in graph.outputs:
            return False
        for reader in set(graph.consumers[source]) - {state.output}:
            expansion = expansion_of(reader)
            if expansion.moves:
                moved.append(reader)
                continue
            pairs = zip(expansion.demands(reader, graph), reader.inputs, strict=True)
            demands += [demand for demand, each in pairs if each is source]
    return bool(demands) and set(demands) == {Demand.NARROW}


def _held(facts: Facts) -> dict[str, Target]:
    """States, and what operators that move elements make of them. A product takes these as they are: what a gate or a
    factor multiplies from call to call would else stand still where a step of its narrow form is too coarse.

    None in a network that brings quantizers: it says what it rounds.
    """
    if facts.fixed:
        return {}
    found = {state.name: facts.states[state.name] for state in states_of(facts.graph)}
    for symbol in facts.graph.operators:
        if expansion_of(symbol).moves and symbol.inputs[0].name in found:
            found[symbol.name] = found[symbol.inputs[0].name]
    return found


def takes_held(reader: Symbol, facts: Facts) -> bool:
    """Whether what reads a held tensor takes it as the state has it."""
    return reader.operator.operation is Operation.MULTIPLY or reader.name in facts.held


STATES = FactPass("states", _targets, ("fixed", "ranges", "options", "never_negative"))
HELD = FactPass("held", _held, ("fixed", "states"))
