"""The states of a graph: which output becomes which input of the next call, and what that input is at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.messages import short
from mrt.symbol.builder import GraphBuilder, keep
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array
from mrt.symbol.operators.selection import Where
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.transform import ExpandDims, Squeeze
from mrt.symbol.symbol import Symbol
from mrt.symbol.types import TensorType

_NAMES_SHOWN = 8


@dataclass(frozen=True, eq=False)
class State:
    """A pair of a graph: `output`, at `place` among the outputs, is what `input` holds in the next call.

    initial: what it holds in the first; it broadcasts to the input.
    """

    input: Symbol
    output: Symbol
    place: int
    initial: Array

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def first(self) -> Array:
        """The initial value of one sample, (1, *shape)."""
        return np.array(np.broadcast_to(self.initial[:1], (1, *self.input.shape[1:])))


def compact(values: Array) -> Any:
    """Numbers for JSON: one where they are all alike, else nested lists."""
    return values.flat[0].item() if (values == values.flat[0]).all() else values.tolist()


def states_of(graph: Graph) -> tuple[State, ...]:
    """The states of a graph, in the order of its outputs; GraphError where a pair is none."""
    found: dict[Symbol, State] = {}
    for place, output in enumerate(graph.outputs):
        if not isinstance(output.operator, Assign):
            continue
        _, state, initial = output.inputs
        value = graph.value(initial)
        if state in found and found[state].output is output:
            continue
        if state not in graph.inputs or value is None or state in found:
            why = "two outputs set it" if state in found else "it must be an input, and its initial value a parameter"
            raise GraphError(f"{output.name} (assign) sets the state {state.name}: {why}")
        found[state] = State(state, output, place, value)
    return tuple(found.values())


def is_cache(graph: Graph, state: State) -> bool:
    """Whether a state holds next what it holds, but for what a call puts in the place of some of it, where(c, new, S),
    and nothing else reads what it held."""
    value, readers = state.output.inputs[0], set(graph.consumers[state.input])
    return isinstance(value.operator, Where) and value.inputs[2] is state.input and readers == {value, state.output}


def places_behind(states: Sequence[State], tail: Graph | None) -> tuple[int, ...]:
    """The places of states among the outputs of the float tail that takes the outputs of their graph in order."""
    if tail is None:
        return tuple(state.place for state in states)
    return tuple(tail.outputs.index(tail.inputs[state.place]) for state in states)


def state_names(graph: Graph) -> frozenset[str]:
    """The names of the inputs that are states."""
    return frozenset(state.name for state in states_of(graph))


def fed_inputs(graph: Graph) -> tuple[Symbol, ...]:
    """The inputs that are fed at every call: all but states."""
    kept = {state.input for state in states_of(graph)}
    return tuple(symbol for symbol in graph.inputs if symbol not in kept)


def check_states_stay(before: Graph, after: Graph) -> None:
    """GraphError naming the states of a graph that one made from it has no more, since what sets them was cut off."""
    lost = sorted(state_names(before) - state_names(after))
    if lost:
        raise GraphError(
            f"what the states {', '.join(lost)} hold next is computed behind the cut (prepare.split), which stays "
            f"float; a state is kept in integers: cut behind it"
        )


@dataclass(frozen=True, eq=False)
class Pair:
    """A state to be: the name of an input and the place of an output of a graph, the initial value (None: zeros), and
    what the input is called then (None: as it is)."""

    input: str
    output: int
    initial: Any = None
    name: str | None = None


def with_states(graph: Graph, states: Mapping[str, str], initial: Mapping[str, Any] | None = None) -> Graph:
    """The graph with pairs of inputs and outputs as states: each such output is what the input holds in the next call.

    states: outputs by the names of inputs. initial: what inputs hold in the first call, numbers or arrays that
    broadcast to them; zeros where nothing is given.
    A state whose axis 0 is not the batch gets the batch as an axis in front; that takes a graph of batch 1. States come
    last among the inputs and the outputs of the result. An output is given no more once a state holds it, unless there
    is no other.
    Raises GraphError naming the input and the output that do not fit, what was found and what is needed.
    """
    for what, given in (("states", states), ("initial", initial)):
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
            raise GraphError(f"{what} is {short(given)}; a mapping by the names of inputs is needed")
    unknown = sorted(set(initial or {}) - set(states))
    if unknown:
        raise GraphError(f"initial values are given for {', '.join(unknown)}, which no state is called")
    given = initial or {}
    return paired(graph, [Pair(name, _place(graph, name, output), given.get(name)) for name, output in states.items()])


def _place(graph: Graph, name: str, output: object) -> int:
    """The place of the output of this name that the state `name` is to hold."""
    names = [symbol.name for symbol in graph.outputs]
    if output not in names:
        raise GraphError(f"state {name}: no output is called {short(output)}; the outputs are {_shown(names)}")
    return names.index(output)


def paired(graph: Graph, pairs: Sequence[Pair]) -> Graph:
    """`with_states` of pairs."""
    if not pairs:
        return graph
    for pair in pairs:
        _check(pair, graph)
    if len({pair.input for pair in pairs} | state_names(graph)) < len(pairs) + len(states_of(graph)):
        raise GraphError("an input is a state twice; one output for each state is needed")
    fed = [symbol for symbol in fed_inputs(graph) if symbol.name not in {pair.input for pair in pairs}]
    if not fed:
        raise GraphError("every input is a state; at least one that is fed at every call is needed")
    return _Pairing(graph, pairs, fed).graph()


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")


def _check(pair: Pair, graph: Graph) -> None:
    inputs, output = {symbol.name: symbol for symbol in graph.inputs}, graph.outputs[pair.output]
    if pair.input not in inputs:
        raise GraphError(f"state {pair.input}: no input is called so; the inputs are {_shown(list(inputs))}")
    state, value = inputs[pair.input].type, output.type
    if state != value:
        raise GraphError(
            f"state {pair.input} is {state}, and the output {output.name}, which it is to hold next, {value}; both "
            f"must be of one shape and dtype"
        )
    if not state.is_float:
        raise GraphError(
            f"state {pair.input} is {state}; real values alone are kept: leave it an input, and feed it at every call"
        )
    if pair.initial is not None:
        _checked_initial(pair, state)


def _checked_initial(pair: Pair, state: TensorType) -> Array:
    """The initial value as float32 of the state's shape; GraphError where it is none."""
    try:
        value = np.asarray(0.0 if pair.initial is None else pair.initial).astype(np.float32)
        full = np.broadcast_to(value, state.shape)
    except (TypeError, ValueError):
        raise GraphError(
            f"state {pair.input}: the initial value is {short(pair.initial)}; numbers that broadcast to {state} are "
            f"needed"
        ) from None
    if not np.isfinite(value).all():
        raise GraphError(f"state {pair.input}: the initial value holds NaN or infinity; finite numbers are needed")
    return full


class _Pairing:
    """Makes the graph with states."""

    def __init__(self, graph: Graph, pairs: Sequence[Pair], fed: Sequence[Symbol]) -> None:
        self._old, self._pairs = graph, pairs
        self._builder = GraphBuilder(reserved=graph.by_name)
        self._batches = {symbol.shape[:1] for symbol in fed}
        self._new: dict[Symbol, Symbol] = {symbol: self._builder.adopt_input(symbol) for symbol in fed}
        for state in states_of(graph):
            self._new[state.input] = self._builder.adopt_input(state.input)
        by_name = {symbol.name: symbol for symbol in graph.inputs}
        self._states = {pair.input: self._state(by_name[pair.input], pair) for pair in pairs}

    def _state(self, old: Symbol, pair: Pair) -> Symbol:
        """The input of a state; what it was becomes the input without the axis in front."""
        name = pair.name if pair.name and pair.name not in self._old.by_name else old.name
        if self._batches == {old.shape[:1]}:
            made = self._builder.input(name, old.type)
            self._new[old] = made
            return made
        if self._batches != {(1,)}:
            found = ", ".join(str(list(lengths)) for lengths in sorted(self._batches))
            raise GraphError(
                f"state {pair.input} is {old.type}, and axis 0 of the inputs that are fed, their batch, has the length "
                f"{found}: read the model with batch 1, or with the batch as axis 0 of the state"
            )
        made = self._builder.input(name, old.type.with_shape((1, *old.shape)))
        self._new[old] = self._builder.apply(Squeeze(axis=(0,)), [made], f"{made.name}_of_one")
        return made

    def graph(self) -> Graph:
        builder, old = self._builder, self._old
        for symbol in old.symbols:
            if symbol in self._new:
                continue
            if symbol.is_variable:
                self._new[symbol] = builder.adopt(symbol, old.value(symbol))
            else:
                self._new[symbol] = keep(symbol, tuple(self._new[source] for source in symbol.inputs), builder)
        held, earlier = {pair.output for pair in self._pairs}, [state.output for state in states_of(old)]
        given = [(place, symbol) for place, symbol in enumerate(old.outputs) if symbol not in earlier]
        shown = [symbol for place, symbol in given if place not in held] or [symbol for _, symbol in given]
        outputs = [self._new[symbol] for symbol in (*shown, *earlier)]
        made = builder.graph([*outputs, *(self._assigned(pair) for pair in self._pairs)])
        return made.read_like(old)

    def _assigned(self, pair: Pair) -> Symbol:
        builder, state = self._builder, self._states[pair.input]
        old = self._old.outputs[pair.output]
        value = self._new[old]
        initial = _checked_initial(pair, old.type)
        if value.type != state.type:
            value = builder.apply(ExpandDims(axis=0), [value], f"{old.name}_in_front")
            initial = initial[None]
        first = initial[:1] if initial.size and (initial == initial[:1]).all() else initial
        if first.size and (first == first.flat[0]).all():
            first = first[(slice(1),) * first.ndim]
        constant = builder.parameter(f"{state.name}_initial", np.array(first))
        return builder.apply(Assign(), [value, state, constant], f"{state.name}_next")
