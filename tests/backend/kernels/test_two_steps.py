"""Loops over the steps of dots that make two of them in each turn."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from layers import DTYPES, Layers, in_turn
from tvm import te

from mrt.backend.kernels.generic.two_steps import TwoSteps
from mrt.backend.te.stages import Hint
from mrt.backend.tir.statements import MANY, ROLLED
from mrt.symbol import Runner


def marked(turns: int) -> Any:
    """A scheduled function whose only loop has the mark, over a vector in each turn."""
    x = te.placeholder((turns * 4,), "int32", "x")
    plan = tvm.s_tir.Schedule(te.create_prim_func([x, te.compute((turns * 4,), lambda i: x[i] * x[i], "squared")]))
    turn, lane = plan.split(plan.get_loops(plan.get_sblock("squared"))[0], [turns, 4])
    plan.vectorize(lane)
    plan.annotate(turn, Hint.TWO_STEPS, 1)
    return plan.mod["main"]


@pytest.mark.parametrize(("steps", "turns"), [(MANY, MANY // 2), (32, 16), (33, 33), (MANY - 2, MANY - 2)])
def test_a_turn_makes_two_steps_where_none_is_left_over_and_they_are_many(steps: int, turns: int) -> None:
    loop = TwoSteps().run(marked(steps)).made.body.block.body
    assert int(loop.extent) == turns
    assert ("T.unroll(2)" in loop.body.script()) is (turns < steps)
    assert dict(loop.annotations) == ({ROLLED: 1} if turns < steps else {})


def test_sums_of_even_odd_and_few_steps(runner: Runner, turn: int) -> None:
    """Of maps whose tiles are jammed, too, and of several taps: of every other number of channels on each CPU."""
    layers, dtypes = Layers(), in_turn(DTYPES, turn // 2)
    shapes = [
        (48, 7, 1, {}, (12, 16, 30, 64)),
        (64, 14, 1, {"stride": (2, 2)}, (16, 30, 70, 96)),
        (32, 9, 3, {"stride": (2, 2)}, (12, 64, 70)),
        (32, 8, 3, {"pad": (1, 1)}, (16, 30, 96)),
    ]
    for filters, size, kernel, attributes, many in shapes:
        for channels in many[turn % 2 :: 2]:
            given = layers.input(layers.integers((1, channels, size, size), "int16", -200, 200))
            first = layers.requantized(given, next(dtypes))
            layers.finish(layers.requantized(layers.convolution(first, filters, (kernel, kernel), **attributes)))
    layers.check(runner=runner)
