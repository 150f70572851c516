"""A rounded network in parts that run one after the other: what several trials have in common runs once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise

import numpy as np

from mrt.quantization.cost import CALL, operations
from mrt.quantization.simulation.rounded_graph import RoundedGraph
from mrt.symbol import Array, Evaluate, Graph, Runner, Symbol
from mrt.symbol.runner import prepare_all

HELD_BYTES = 2**26
"""What the tensors between all parts may take of one chunk of samples, 64 MiB. More parts save less time each, and
hold more: where these take more there are fewer parts, down to the whole network, whose trials all begin at the input.
"""
MOST_PARTS, LEAST_OPERATIONS = 12, 3e7
"""How many parts there are at most, and the operations of a sample that are worth one: a part costs some copies. Of
trials that differ at one place anywhere, 12 parts leave 54 % of what they take from the input on."""

Held = Mapping[str, Array]
"""Tensors between two parts, by name."""


@dataclass(frozen=True, eq=False)
class _Part:
    """evaluate: of the tensors `inputs`, gives `made`, which later parts read. given: those of `inputs` that trials
    choose. kept: the tensors that are read behind the part."""

    evaluate: Evaluate
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
    """The parts of a rounded network, compiled. Bits do not depend on which trials run together."""

    def __init__(self, rounded: RoundedGraph, runner: Runner, data: Sequence[str]) -> None:
        """data: the names of the inputs that are samples; all others are a trial's."""
        graph, places = rounded.graph, cut_places(rounded.graph)
        self._outputs = tuple(symbol.name for symbol in graph.outputs)
        operators, last = graph.operators, _last_reads(graph)
        spans = list(pairwise([0, *places, len(operators)])) if operators else []
        behind = [[s for s in operators[:end] if last[s] >= end] for _, end in spans]
        made = [[s for s in operators[first:end] if last[s] >= end] for first, end in spans]
        names: list[tuple[str, ...]] = []

        def graphs() -> Iterator[Graph]:
            for (first, _), outputs in zip(spans, made, strict=True):
                part = rounded.part({*graph.inputs, *operators[:first]}, outputs)
                names.append(tuple(symbol.name for symbol in part.inputs))
                yield part

        size = sum(value.nbytes for value in graph.parameters.values())
        found = prepare_all(runner, graphs(), size)
        chosen = {symbol.name for symbol in graph.inputs}.difference(data)
        self._parts = [
            _Part(evaluate, inputs, tuple(n for n in inputs if n in chosen), _names(outputs), _names(kept))
            for evaluate, inputs, outputs, kept in zip(found, names, made, behind, strict=True)
        ] or [_Part(lambda feeds: [], (), (), (), ())]

    def __len__(self) -> int:
        return len(self._parts)

    def keys(self, feeds: Mapping[str, Array]) -> tuple[bytes, ...]:
        """For each part what tells trials apart there. feeds: what a trial gives."""
        return tuple(_digest(feeds[name] for name in part.given) for part in self._parts)

    def outputs(self, arrays: Mapping[str, Array], feeds: Mapping[str, Array], branch: Branch) -> list[Array]:
        """The outputs of the network for one chunk. arrays: its samples."""
        held = branch.held
        for number in range(branch.part, len(self)):
            held = self._behind(number, arrays, feeds, held)
        return [held[name] if name in held else arrays[name] for name in self._outputs]

    def branches(
        self,
        arrays: Mapping[str, Array],
        feeds: Callable[[int], Mapping[str, Array]],
        keys: Mapping[int, Sequence[bytes]],
    ) -> Iterator[Branch]:
        """What is left of all trials on one chunk of samples, whose common parts run while this is drawn.

        feeds: gives what a trial feeds, by its number; keys: of all trials. What is held at once are the tensors
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
                    held = self._behind(common.part, arrays, feeds(trials[0]), common.held)
                    held = {name: np.ascontiguousarray(value) for name, value in held.items()}
                    waiting.append(Branch(tuple(trials), common.part + 1, held))

    def _behind(self, number: int, arrays: Mapping[str, Array], feeds: Mapping[str, Array], held: Held) -> Held:
        """What is held behind a part, of what is held in front of it."""
        part = self._parts[number]
        sources = (held, feeds, arrays)
        given = {name: next(source[name] for source in sources if name in source) for name in part.inputs}
        found = {**held, **dict(zip(part.made, part.evaluate(given), strict=True))}
        return {name: found[name] for name in part.kept}


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


def _names(symbols: Sequence[Symbol]) -> tuple[str, ...]:
    return tuple(symbol.name for symbol in symbols)


def _digest(arrays: Iterator[Array]) -> bytes:
    found = blake2b(digest_size=16)
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
