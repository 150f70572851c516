"""A tensor times a ramp of itself is one operator of the same integers, fused with what makes the tensor."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op

from mrt.backend.fusion.regions import find_regions
from mrt.backend.operators.times_ramp import TimesRamp
from mrt.backend.rewrites.rewrite import Facts
from mrt.backend.rewrites.times_ramp_of_itself import TimesRampOfItself
from mrt.symbol import Graph, GraphBuilder, Runner, TensorType
from mrt.symbol.interval import Interval

FEEDS = {"x": np.arange(-4096, 4096).reshape(1, 16, 32, 16).astype(np.int16)}


def gated(finer: int = 2, start: int = 3000, most: int = 6000, reads: int = 1, least: int = 0) -> Graph:
    """A tensor times its ramp, in bytes; reads: how many read the ramp."""
    builder = GraphBuilder()

    def number(name: str, value: int) -> object:
        return builder.parameter(name, np.full((1, 1, 1, 1), value, np.int32))

    x = builder.input("x", TensorType((1, 16, 32, 16), "int16"))
    data = builder.apply(op("broadcast_add"), [x, number("zero_point", 500)])
    scaled = data
    if finer:
        scaled = builder.apply(op("left_shift" if finer > 0 else "right_shift"), [data, number("by", abs(finer))])
    moved = builder.apply(op("broadcast_add"), [scaled, number("start", start)])
    ramp = builder.apply(op("clip", a_min=float(least), a_max=float(most)), [moved])
    product = builder.apply(op("elemwise_mul"), [data, ramp])
    made = builder.apply(op("right_shift"), [product, number("shift", 10)])
    held = builder.apply(op("clip", a_min=-128.0, a_max=127.0), [made])
    others = [builder.apply(op("relu"), [ramp]) for _ in range(reads - 1)]
    return builder.graph([builder.apply(op("Cast", dtype="int8"), [held]), *others])


CASES = [(0, 3000, 6000), (4, 30000, 60000), (-1, 1024, 2048), (-3, 0, 500), (2, -100, 6000)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_ramp_and_its_tensor_are_one_operator(case: tuple[int, int, int], runner: Runner) -> None:
    graph = gated(*case)
    found = TimesRampOfItself()(graph)
    assert [s.op for s in found.operators] == ["broadcast_add", "times_ramp", "right_shift", "clip", "Cast"]
    assert len(find_regions(found)) == 1
    assert_same_values(found, found.evaluate(FEEDS), graph.evaluate(FEEDS))
    assert_same_values(graph, runner.prepare(graph)(FEEDS), graph.evaluate(FEEDS))


def test_a_ramp_that_others_read_stays() -> None:
    result = TimesRampOfItself().run(gated(reads=2))
    assert [refusal.reason for refusal in result.refusals] == ["its ramp is read by others too"]
    assert "times_ramp" not in {symbol.op for symbol in result.graph.operators}


@pytest.mark.parametrize("least", [-1, 1])
def test_what_does_not_begin_at_0_is_no_ramp(least: int) -> None:
    graph = gated(least=least)
    assert TimesRampOfItself()(graph).operators == graph.operators


def test_what_is_cast_from_floats_is_read_as_integers() -> None:
    """The cast, which truncates, stays."""
    builder = GraphBuilder()
    data = builder.apply(op("Cast", dtype="int32"), [builder.input("x", TensorType((1, 8), "float32"))])
    one = builder.parameter("one", np.ones((1, 1), np.int32))
    ramp = builder.apply(op("clip", a_min=0.0, a_max=2.0), [builder.apply(op("broadcast_add"), [data, one])])
    found = TimesRampOfItself()(builder.graph([builder.apply(op("elemwise_mul"), [data, ramp])]))
    assert [symbol.op for symbol in found.operators] == ["Cast", "times_ramp"]


@pytest.mark.parametrize(("most", "is_one"), [(2**31 - 3, True), (2**31 - 1, False)])
def test_the_half_that_rounds_has_room(most: int, is_one: bool) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4), "int32"))
    by, start = (builder.parameter(n, np.full((1, 1), v, np.int32)) for n, v in (("by", 2), ("start", 0)))
    moved = builder.apply(op("broadcast_add"), [builder.apply(op("right_shift"), [x, by]), start])
    ramp = builder.apply(op("clip", a_min=0.0, a_max=1.0), [moved])
    graph = builder.graph([builder.apply(op("elemwise_mul"), [x, ramp])])
    found = TimesRampOfItself(Facts(None, {"x": Interval.of(0, most, x.shape)})).run(graph)
    assert ("times_ramp" in {symbol.op for symbol in found.graph.operators}) is is_one
    assert [refusal.reason for refusal in found.refusals] == ["there is no room for the half that rounds"] * (
        not is_one
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_bounds_hold_all_products(case: tuple[int, int, int]) -> None:
    finer, start, most = case
    for lo, hi in ((-4096, 4095), (-700, -3), (5, 9), (-2, 2)):
        data = np.arange(lo, hi + 1)
        operator = TimesRamp(finer)
        numbers = [Interval.of(number, number, (1,)) for number in (start, most)]
        bounds = operator.bounds(Interval.of(lo, hi, data.shape), *numbers)
        values = operator.evaluate(data, np.array([start]), np.array([most]))
        assert bounds.min <= values.min() and values.max() <= bounds.max
