"""Two steps of a sum of dots in each turn of the loop over steps, which then counts and branches half as often.

Where few registers hold sums, a step has so few dots that counting and branching are a tenth of its instructions. A
core whose other thread is busy begins fewer of them in a cycle. Of four steps LLVM loads so much before it is needed
that sums go through memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, marks_but, without_marks
from mrt.backend.te.stages import Hint
from mrt.backend.tir.statements import MANY, ROLLED, loop_around, serial, unrolled, with_values
from mrt.symbol.passes import Property

STEPS = 2
"""In each turn."""


@dataclass(frozen=True)
class TwoSteps(KernelPass):
    """The loops with `Hint.TWO_STEPS` that have no step left over; the others stay as they are.

    So do those of fewer than MANY steps, which LLVM writes out.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.TWO_STEPS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.TWO_STEPS),)

    def lower(self, function: Any) -> Any:
        return lower_loops(function, Hint.TWO_STEPS, _by_turns)


def _by_turns(loop: Any) -> Any:
    steps = int(loop.extent)
    if steps % STEPS or steps < MANY:
        return loop_around(loop, loop.body, marks=marks_but(loop, Hint.TWO_STEPS))
    turn, step = loop.loop_var, tirx.Var("step", "int32")
    both = unrolled(step, STEPS, with_values(loop.body, {turn: turn * STEPS + step}))
    return serial(turn, steps // STEPS, both, ROLLED)
