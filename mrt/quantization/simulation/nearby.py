"""The error that each of many trials makes alone, by what it does to the tensors a few operators on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.execution import Program
from mrt.quantization.simulation.on_chunk import OnChunk, energies_of
from mrt.quantization.simulation.parts import Held, Parts
from mrt.symbol import Array

MEASURED = 0.01
"""A trial that seems to make so large a share of all errors is measured at the outputs."""


@dataclass(frozen=True, eq=False)
class RunNearby:
    """Runs trials on chunks, each through the parts of the network in which it differs from another.

    feeds: of each trial; spans: those parts; before: what the other is fed.
    """

    parts: Parts
    feeds: Mapping[int, Mapping[str, Array]]
    spans: Mapping[int, range]
    before: Mapping[str, Array]

    def __call__(self, asked: OnChunk, *programs: Program) -> tuple[int, dict[int, Array]]:
        """The place, and by trial the energies of signal and error of the tensors that are held behind its parts, (2,
        tensors). Trials come in the order in which their parts begin."""
        arrays, exact, found = asked.chunk.arrays, list[Held]([{}]), dict[int, Array]()
        for number in asked.trials:
            span = self.spans[number]
            while len(exact) <= span.stop:
                last = len(exact) - 1
                held = self.parts.behind(programs, range(last, last + 1), arrays, self.before, exact[last])
                exact.append({name: np.ascontiguousarray(value) for name, value in held.items()})
            held = self.parts.behind(programs, span, arrays, self.feeds[number], exact[span.start])
            wanted = exact[span.stop]
            names = [name for name, value in wanted.items() if value.dtype.kind == "f"]
            signal, given = ([each[name] for name in names] for each in (wanted, held))
            found[number] = energies_of(asked.chunk, signal, signal, given)
        return asked.place, found


def shared_errors(
    groups: Sequence[Sequence[int]],
    local: Sequence[float],
    errors: Callable[[Sequence[Sequence[int]]], Sequence[float]],
) -> list[float]:
    """The errors that trials make at the outputs, by their numbers.

    groups: trials that are compared at the same place. local: the error that each makes there. errors: gives the errors
    at the outputs of trials that are run as one.

    Errors of different tensors add up, so that a group's error at the outputs is shared out in the proportions of the
    local ones. On the way to the outputs one error may fall and another rise: trials that seem to make MEASURED of all
    are run by themselves. The others of their group share what is left, where that is more.
    """
    found = np.array(local, np.float64)
    together = errors(groups)
    for group, error in zip(groups, together, strict=True):
        found[list(group)] *= error / (found[list(group)].sum() or 1.0)
    alone = [n for group in groups if len(group) > 1 for n in group if found[n] > MEASURED * found.sum()]
    measured = dict(zip(alone, errors([[number] for number in alone]), strict=True))
    for group, error in zip(groups, together, strict=True):
        others = [number for number in group if number not in measured]
        left = error - sum(measured.get(number, 0.0) for number in group)
        found[others] *= max(1.0, left / (found[others].sum() or 1.0))
    for number, error in measured.items():
        found[number] = error
    return [float(error) for error in found]
