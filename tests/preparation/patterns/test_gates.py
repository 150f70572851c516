"""Hard swish, however it is written, becomes one operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mrt.preparation.patterns import SpelledOut
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol, TensorType, find_operator

Made = Callable[["Maker"], Symbol]


class Maker:
    """Operators on one float tensor, x, and what it is a sum of."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        given = self.builder.input("given", TensorType((2, 3, 4, 4), "float32"))
        bias = self.builder.parameter("bias", np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1))
        self.x = self.of("broadcast_add", given, bias)

    def of(self, name: str, *inputs: Symbol, **attributes: float) -> Symbol:
        record: type[Operator] = find_operator(name)
        return self.builder.apply(record(**attributes), inputs)

    def number(self, value: float) -> Symbol:
        return self.builder.parameter(f"number{value}", np.full((1,), value, np.float32))

    def ramp(self, most: float = 6.0, start: float = 3.0, least: float = 0.0) -> Symbol:
        return self.of("clip", self.of("_plus_scalar", self.x, scalar=start), a_min=least, a_max=most)


SPELLINGS: dict[str, Made] = {
    "over 6": lambda m: m.of("_div_scalar", m.of("elemwise_mul", m.x, m.ramp()), scalar=6),
    "the ramp first": lambda m: m.of("_mul_scalar", m.of("elemwise_mul", m.ramp(), m.x), scalar=1 / 6),
    "the ramp over 6": lambda m: m.of("elemwise_mul", m.x, m.of("_div_scalar", m.ramp(), scalar=6)),
    "x over 6": lambda m: m.of("elemwise_mul", m.of("_mul_scalar", m.x, scalar=1 / 6), m.ramp()),
    "by constants": lambda m: m.of("broadcast_div", m.of("elemwise_mul", m.x, m.ramp()), m.number(6.0)),
    "a sum with a constant": lambda m: m.of(
        "_div_scalar",
        m.of("elemwise_mul", m.x, m.of("clip", m.of("broadcast_add", m.number(3.0), m.x), a_min=0.0, a_max=6.0)),
        scalar=6,
    ),
    "a ramp up to 1": lambda m: m.of(
        "elemwise_mul",
        m.x,
        m.of("clip", m.of("_plus_scalar", m.of("_mul_scalar", m.x, scalar=1 / 6), scalar=0.5), a_min=0.0, a_max=1.0),
    ),
    "hard sigmoid": lambda m: m.of("elemwise_mul", m.of("hard_sigmoid", m.x, alpha=1 / 6, beta=0.5), m.x),
}
OTHERS: dict[str, Made] = {
    "another height": lambda m: m.of("elemwise_mul", m.x, m.ramp()),
    "another end": lambda m: m.of("_div_scalar", m.of("elemwise_mul", m.x, m.ramp(5.0)), scalar=6),
    "another start": lambda m: m.of("_div_scalar", m.of("elemwise_mul", m.x, m.ramp(6.0, 2.9)), scalar=6),
    "not from 0": lambda m: m.of("_div_scalar", m.of("elemwise_mul", m.x, m.ramp(6.0, 3.0, 0.5)), scalar=6),
    "another slope": lambda m: m.of("elemwise_mul", m.of("hard_sigmoid", m.x, alpha=0.2, beta=0.5), m.x),
    "of something else": lambda m: m.of("_div_scalar", m.of("elemwise_mul", m.of("relu", m.x), m.ramp()), scalar=6),
    "times nothing": lambda m: m.of("elemwise_mul", m.of("_mul_scalar", m.x, scalar=0), m.ramp()),
    "of its square": lambda m: m.of(
        "_div_scalar", m.of("elemwise_mul", m.x, m.of("elemwise_mul", m.ramp(), m.ramp())), scalar=6
    ),
}


def made(name: str, spellings: dict[str, Made]) -> tuple[Graph, Graph]:
    maker = Maker()
    graph = maker.builder.graph([spellings[name](maker)])
    return graph, SpelledOut()(graph)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_hard_swish_is_found(spelling: str) -> None:
    graph, found = made(spelling, SPELLINGS)
    assert [symbol.op for symbol in found.operators] == ["broadcast_add", "hard_swish"]
    assert found.outputs[0].name == graph.outputs[0].name
    feeds = {"given": np.random.default_rng(0).uniform(-8, 6, (2, 3, 4, 4)).astype(np.float32)}
    np.testing.assert_allclose(found.evaluate(feeds)[0], graph.evaluate(feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spelling", OTHERS)
def test_what_is_no_hard_swish_stays(spelling: str) -> None:
    graph, found = made(spelling, OTHERS)
    assert [symbol.op for symbol in found.operators] == [symbol.op for symbol in graph.operators]


def test_what_must_stay_keeps_it_apart() -> None:
    maker = Maker()
    graph = maker.builder.graph([SPELLINGS["over 6"](maker)])
    ramp = next(symbol for symbol in graph.operators if symbol.op == "clip")
    result = SpelledOut(frozenset({ramp.name})).run(graph)
    assert "hard_swish" not in {symbol.op for symbol in result.graph.operators}
    assert ramp.name in result.refusals[0].reason
