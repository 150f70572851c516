"""A rounded network in parts that run one after the other: what several trials have in common runs once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import accumulate, pairwise, starmap, takewhile
from threading import Lock
from typing import TypeVar

import numpy as np

from mrt.collector import give_back_freed
from mrt.execution import Program
from mrt.quantization.cost import CALL, operations
from mrt.quantization.simulation.rounded_graph import RoundedGraph
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol
from mrt.symbol.builder import part_of
from mrt.symbol.runner import prepare_all

HELD_BYTES = 2**26
"""What the tensors between all parts may take of one chunk of samples, 64 MiB. More parts save less time each, and
hold more: where these take more there are fewer parts, down to the whole network, whose trials all begin at the input.
"""
MOST_PARTS, LEAST_OPERATIONS = 12, 3e7
"""How many parts there are at most, and the operations of a sample that are worth one: a part costs some copies. Of
trials that differ at one place anywhere, 12 parts leave 54 % of what they take from the input on."""

Item = TypeVar("Item")
Held = Mapping[str, Array]
"""Tensors between two parts, by name."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Of the tensors `inputs` it gives `made`, which later parts read. given: those of `inputs` that trials choose.
    kept: the tensors that are read behind the part."""

    inputs: tuple[str, ...]
    given: tuple[str, ...]
    made: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """Trials, by their numbers, that are one from here on: what is left to run from a part on, for all of them."""

    trials: tuple[int, ...]
    part: int
    held: Held


WHOLE = Branch((0,), 0, {})
"""A trial of which all is to be run."""


class Parts:
    """The parts of a rounded network. Bits do not depend on which trials run together.

    Methods take the `programs` that run them, one for each.
    """

    def __init__(self, parts: Sequence[_Part], outputs: Sequence[str]) -> None:
        self._parts, self._outputs = tuple(parts), tuple(outputs)

    def __len__(self) -> int:
        return len(self._parts)

    def keys(self, feeds: Mapping[str, Array]) -> tuple[bytes, ...]:
        """For each part what tells trials apart there. feeds: what a trial gives."""
        return tuple(_digest(feeds[name] for name in part.given) for part in self._parts)

    def keys_beside(
        self, feeds: Mapping[str, Array], other: Mapping[str, Array], keys: Sequence[bytes]
    ) -> tuple[bytes, ...]:
        """The same, of a trial that gives mostly the arrays that another one does. other, keys: of that one."""
        return tuple(
            key
            if all(feeds[name] is other[name] for name in part.given)
            else _digest(feeds[name] for name in part.given)
            for part, key in zip(self._parts, keys, strict=True)
        )

    def span(self, keys: Sequence[bytes], before: Sequence[bytes]) -> range:
        """The parts from the first to the last in which two trials differ; the first part alone if they do nowhere."""
        places = [place for place, (one, other) in enumerate(zip(keys, before, strict=True)) if one != other] or [0]
        return range(places[0], places[-1] + 1)

    def outputs(
        self, programs: Sequence[Program], arrays: Mapping[str, Array], feeds: Mapping[str, Array], branch: Branch
    ) -> list[Array]:
        """The outputs of the network for one chunk. arrays: its samples."""
        held = self.behind(programs, range(branch.part, len(self)), arrays, feeds, branch.held)
        return [held[name] if name in held else arrays[name] for name in self._outputs]

    def branches(
        self,
        programs: Sequence[Program],
        arrays: Mapping[str, Array],
        feeds: Mapping[int, Mapping[str, Array]],
        keys: Mapping[int, Sequence[bytes]],
    ) -> Iterator[Branch]:
        """What is left of all trials on one chunk of samples, whose common parts run while this is drawn.

        feeds: what a trial feeds, by its number; keys: of all trials. What is held at once are the tensors
        between the parts of one trial.
        """
        waiting = [Branch(tuple(keys), 0, {})]
        while waiting:
            common = waiting.pop()
            alike: dict[bytes, list[int]] = {}
            for trial in common.trials:
                alike.setdefault(keys[trial][common.part], []).append(trial)
            for trials in alike.values():
                if len(trials) == 1 or common.part == len(self) - 1:
                    yield Branch(tuple(trials), common.part, common.held)
            for trials in alike.values():
                if len(trials) > 1 and common.part < len(self) - 1:
                    part = range(common.part, common.part + 1)
                    held = self.behind(programs, part, arrays, feeds[trials[0]], common.held)
                    held = {name: np.ascontiguousarray(value) for name, value in held.items()}
                    waiting.append(Branch(tuple(trials), common.part + 1, held))

    def behind(
        self,
        programs: Sequence[Program],
        numbers: range,
        arrays: Mapping[str, Array],
        feeds: Mapping[str, Array],
        held: Held,
    ) -> Held:
        """What is held behind some parts, of what is held in front of them."""
        for number in numbers:
            part = self._parts[number]
            sources = (held, feeds, arrays)
            given = {name: next(source[name] for source in sources if name in source) for name in part.inputs}
            found = {**held, **dict(zip(part.made, programs[number](given) if part.made else [], strict=True))}
            held = {name: found[name] for name in part.kept}
        return held


def shared_out(trials: Sequence[int], keys: Mapping[int, Sequence[bytes]], runs: int) -> list[tuple[int, ...]]:
    """The trials, cut into at most so many runs that take about as long; neighbours stay together.

    keys: see `Parts.keys`. A trial takes the parts behind those that it has in common with the one before it.
    """
    own = [keys[trial] for trial in trials]
    costs = [len(each) - common for each, common in zip(own, [0, *starmap(_common, pairwise(own))], strict=False)]
    whole = max(sum(costs), 1)
    found: dict[int, list[int]] = {}
    for trial, end, cost in zip(trials, accumulate(costs), costs, strict=True):
        found.setdefault(min(int((end - cost / 2) / whole * runs), runs - 1), []).append(trial)
    return [tuple(each) for each in found.values()]


def cut(items: Sequence[Item], runs: int) -> list[Sequence[Item]]:
    """Neighbours together, in at most so many runs of the same length; the last one may be shorter."""
    length = max(-(-len(items) // runs), 1)
    return [items[first : first + length] for first in range(0, len(items), length)]


def parts_of(rounded: RoundedGraph, runner: Runner, data: Sequence[str]) -> tuple[Parts, list[Program]]:
    """The parts and what runs them, compiled together when the first is run.

    data: the names of the inputs that are samples; all others are a trial's.
    """
    graph, places = rounded.graph, cut_places(rounded.graph)
    operators, last = graph.operators, _last_reads(graph)
    spans = list(pairwise([0, *places, len(operators)])) if operators else []
    chosen = {symbol.name for symbol in graph.inputs}.difference(data)
    parts: list[_Part] = []
    made: list[Callable[[], Graph]] = []
    for first, end in spans:
        given = {*graph.inputs, *operators[:first]}
        outputs = [symbol for symbol in operators[first:end] if last[symbol] >= end]
        inputs = _names(part_of(given, outputs, graph.value).inputs)
        kept = _names([symbol for symbol in operators[:end] if last[symbol] >= end])
        parts.append(_Part(inputs, tuple(n for n in inputs if n in chosen), _names(outputs), kept))
        made.append(partial(rounded.part, given, outputs))
    together = _Together(runner, made, sum(value.nbytes for value in graph.parameters.values()))
    programs = [
        Program(partial(together.graph, place), runner, partial(together.evaluate, place)) for place in range(len(made))
    ]
    return Parts(parts or [_Part((), (), (), ())], _names(graph.outputs)), programs


class _Together:
    """Compiles several graphs at once, when the first of them is asked for; then nothing of them is held any more."""

    def __init__(self, runner: Runner, made: Sequence[Callable[[], Graph]], size: int) -> None:
        self._runner, self._made, self._size = runner, list(made), size
        self._lock = Lock()
        self._found: list[Evaluate] = []

    def graph(self, place: int) -> Graph:
        """A graph, to be compiled elsewhere; ValueError where it was compiled here."""
        if self._found:
            raise ValueError("what was compiled here is not held to be compiled elsewhere")
        return self._made[place]()

    def evaluate(self, place: int) -> Evaluate:
        with self._lock:
            if not self._found:
                self._found = prepare_all(self._runner, (make() for make in self._made), self._size)
                self._made.clear()
                give_back_freed()
            return self._found[place]


def cut_places(graph: Graph) -> list[int]:
    """The numbers of the operators in front of which a graph is cut into parts of about the same cost, rising.

    Near each place that would make the costs equal, the one where the fewest bytes are held, and of these one in front
    of a reduction, whose result is computed on with what follows it.
    """
    operators, held = graph.operators, _held_bytes(graph)
    costs = np.cumsum([operations(symbol) + CALL for symbol in operators])
    count = int(min(MOST_PARTS, costs[-1] // LEAST_OPERATIONS)) if operators else 1
    places = []
    for number in range(1, count):
        first, end = np.searchsorted(costs, costs[-1] * (number + np.array([-0.5, 0.5])) / count)
        near = range(max(int(first), 1), int(end))
        if near:
            places.append(min(near, key=lambda place: (held[place], operators[place].channel_axis is None)))
    while sum(held[place] for place in places) > HELD_BYTES:
        places.remove(max(places, key=lambda place: held[place]))
    return places


def _held_bytes(graph: Graph) -> list[int]:
    """In front of each operator, the bytes of the tensors that were computed before and are read from there on."""
    change, last = [0] * (len(graph.operators) + 2), _last_reads(graph)
    for place, symbol in enumerate(graph.operators):
        size = symbol.type.size * np.dtype(symbol.dtype).itemsize
        change[place + 1] += size
        change[last[symbol] + 1] -= size
    return list(accumulate(change))


def _last_reads(graph: Graph) -> dict[Symbol, int]:
    """The place of the last operator that reads each; behind all of them for an output."""
    places, outputs = {symbol: place for place, symbol in enumerate(graph.operators)}, set(graph.outputs)
    return {
        symbol: len(places) if symbol in outputs else max(places[reader] for reader in graph.consumers[symbol])
        for symbol in graph.operators
    }


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many keys two trials begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True)))


def _names(symbols: Sequence[Symbol]) -> tuple[str, ...]:
    return tuple(symbol.name for symbol in symbols)


def _digest(arrays: Iterator[Array]) -> bytes:
    found = blake2b(digest_size=16)
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
