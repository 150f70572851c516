"""The SQNR of each output and of its parts: boxes and scores in one tensor are told apart.

Parts are those that the network joins into the output, as far as the axis stays apart up to there. Where it joins none,
they are runs of channels between whose largest values lies a factor of GAP or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from mrt.report.facts import Output, Part
from mrt.report.measure.numbers import decibels, rounded
from mrt.symbol import Array, Graph, Symbol

GAP = 16.0
MOST_PARTS = 8
MOST_PLACES = 2**16
"""The longest axis whose places are told apart."""


@dataclass(eq=False)
class OutputNoise:
    """Signal and error of an output, whole and at each place of its axes but that of samples; reach: largest values.

    name: what the user's network calls it.
    """

    symbol: Symbol
    name: str
    signal: float = 0.0
    error: float = 0.0
    samples: int = 0
    signals: dict[int, Array] = field(default_factory=dict)
    errors: dict[int, Array] = field(default_factory=dict)
    reaches: dict[int, Array] = field(default_factory=dict)

    def add(self, exact: Array, real: Array) -> None:
        """exact, real: of one sample, the same shape."""
        f = exact.astype(np.float64)
        squares = np.square(f), np.square(f - real.reshape(f.shape).astype(np.float64))
        self.signal, self.error = (s + float(q.sum()) for s, q in zip((self.signal, self.error), squares, strict=True))
        self.samples += 1
        for axis in range(1, f.ndim):
            if not 1 < f.shape[axis] <= MOST_PLACES:
                continue
            others = tuple(k for k in range(f.ndim) if k != axis)
            for kept, values in zip((self.signals, self.errors), squares, strict=True):
                kept[axis] = kept.get(axis, 0.0) + values.sum(axis=others)
            reach = np.abs(f).max(axis=others)
            self.reaches[axis] = np.maximum(self.reaches.get(axis, reach), reach)

    def facts(self) -> Output:
        parts = [self._part(*part) for part in parts_of(self.symbol, self.reaches)]
        return Output(
            name=self.name,
            shape=list(self.symbol.shape),
            samples=self.samples,
            sqnr=decibels(self.signal, self.error),
            parts=parts if len(parts) > 1 else [],
        )

    def _part(self, name: str, axis: int, start: int, stop: int, how: str) -> Part:
        signal, error = (float(kept[axis][start:stop].sum()) for kept in (self.signals, self.errors))
        reach = rounded(float(self.reaches[axis][start:stop].max()))
        return Part(name=name, axis=axis, start=start, stop=stop, how=how, sqnr=decibels(signal, error), reach=reach)


PartPlace = tuple[str, int, int, int, str]


def output_noises(graph: Graph, names: Sequence[str], tail: Graph | None) -> list[OutputNoise]:
    """One for each output of a graph. names: what the user's network calls its outputs, behind the `tail` if any."""
    given = [symbol.name for symbol in graph.outputs]
    is_named = len(names) == len(given) and (tail is None or _goes_straight(tail))
    return [OutputNoise(symbol, name) for symbol, name in zip(graph.outputs, names if is_named else given, strict=True)]


def _goes_straight(tail: Graph) -> bool:
    """Whether each output is made of the input at its place alone."""
    if len(tail.inputs) != len(tail.outputs):
        return False
    reached = [tail.dependents([source]) for source in tail.inputs]
    return all(
        (output in found) == (place == source)
        for place, output in enumerate(tail.outputs)
        for source, found in enumerate(reached)
    )


def parts_of(symbol: Symbol, reaches: dict[int, Array]) -> list[PartPlace]:
    """Name, axis, start, stop and how it was found of each part of an output; none where it has no parts."""
    joined = [part for part in _joined(symbol) if part[1] in reaches]
    return joined if 1 < len(joined) <= MOST_PARTS else _by_reach(reaches)


def _joined(symbol: Symbol) -> list[PartPlace]:
    """What a join that only moves lie behind puts side by side."""
    path: list[Symbol] = []
    while not symbol.is_variable and symbol.operator.joined_axis(symbol.type.rank) is None:
        if not symbol.operator.keeps_scale:
            return []
        path.append(symbol)
        symbol = symbol.inputs[0]
    if symbol.is_variable:
        return []
    axis: int | None = symbol.operator.joined_axis(symbol.type.rank)
    length = 0 if axis is None else symbol.shape[axis]
    for mover in reversed(path):
        types = [source.type for source in mover.inputs]
        axis = None if axis is None else mover.operator.kept_axis(axis, 0, *types)
        if axis is None or mover.shape[axis] != length:
            return []
    places = np.cumsum([0, *(source.shape[_axis_of(symbol)] for source in symbol.inputs)])
    return [
        (source.name, int(axis or 0), int(start), int(stop), "joined")
        for source, start, stop in zip(symbol.inputs, places, places[1:], strict=False)
    ]


def _axis_of(join: Symbol) -> int:
    axis = join.operator.joined_axis(join.type.rank)
    return 0 if axis is None else axis


def _by_reach(reaches: dict[int, Array]) -> list[PartPlace]:
    """Of the axis with the widest gap between the sorted reaches of its places, where that splits it into few runs."""
    best: tuple[float, list[PartPlace]] = (GAP, [])
    for axis, reach in reaches.items():
        ordered = np.sort(reach[reach > 0])
        if len(ordered) < 2:
            continue
        ratios = ordered[1:] / ordered[:-1]
        widest = int(ratios.argmax())
        runs = _runs(reach > ordered[widest], axis)
        if ratios[widest] > best[0] and 1 < len(runs) <= MOST_PARTS:
            best = float(ratios[widest]), runs
    return best[1]


def _runs(is_large: Sequence[bool] | Array, axis: int) -> list[PartPlace]:
    runs, start = [], 0
    for _, group in groupby(is_large):
        stop = start + len(list(group))
        runs.append((f"{start} to {stop - 1}" if stop - start > 1 else str(start), axis, start, stop, "ranges"))
        start = stop
    return runs
