"""Maps as tokens and tokens as maps: the same elements, with channels last on the way, and where they were."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import op
from layers import Layers

from mrt.backend.explain import explain
from mrt.backend.rewrites.tokens_of_maps import TokensOfMaps
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.runner import Runner

TURN = op("transpose", axes=(0, 2, 1))
MAPS = {
    "tokens become a map": ((2, 12, 5), [TURN, op("Reshape", shape=(2, 5, 3, 4))], (0, 3, 1, 2)),
    "a volume": ((1, 12, 5), [TURN, op("Reshape", shape=(0, 0, 3, 2, 2))], (0, 4, 1, 2, 3)),
    "a map becomes tokens": ((2, 5, 3, 4), [op("Reshape", shape=(0, 0, -1)), TURN], (0, 2, 3, 1)),
}


def chain(shape: tuple[int, ...], operators: list[object], also: bool = False) -> Graph:
    """Operators behind each other; also: whether an output gives what stands between the first two."""
    builder = GraphBuilder()
    found = [builder.input("x", TensorType(shape, "int8"))]
    for operator in operators:
        found.append(builder.apply(operator, [found[-1]]))
    return builder.graph([builder.apply(op("relu"), [found[-1]], "y"), *found[1 : 1 + also]])


@pytest.mark.parametrize("case", MAPS)
def test_channels_stay_last_on_the_way(case: str) -> None:
    shape, operators, axes = MAPS[case]
    before = chain(shape, operators)
    after = TokensOfMaps().run(before).graph
    assert [symbol.op for symbol in after.operators] == [*(each.op for each in operators[::-1]), "relu"]
    assert [s.operator.axes for s in after.operators if s.op == "transpose"] == [axes]
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int8)
    np.testing.assert_array_equal(after.evaluate({"x": x})[0], before.evaluate({"x": x})[0])


@pytest.mark.parametrize(
    ("shape", "operators", "also"),
    [
        ((2, 12, 5), [TURN, op("Reshape", shape=(2, 5, 3, 4))], True),
        ((2, 12, 5), [TURN, op("Reshape", shape=(2, 10, 6))], False),
        ((2, 12, 5), [TURN, op("Reshape", shape=(2, 10, 3, 2))], False),
        ((2, 6, 12), [op("Reshape", shape=(2, 3, 2, 12)), op("transpose", axes=(0, 3, 1, 2))], False),
        ((2, 12, 5), [op("relu"), TURN], False),
    ],
)
def test_others_stay(shape: tuple[int, ...], operators: list[object], also: bool) -> None:
    before = chain(shape, operators, also)
    after = TokensOfMaps().run(before).graph
    assert [symbol.operator for symbol in after.operators] == [symbol.operator for symbol in before.operators]


def hybrid(layers: Layers, channels: int = 32) -> Symbol:
    """Layers on tokens, a depthwise convolution on their map in between."""
    x = layers.requantized(layers.input(layers.integers((2, 35, 24), "int16", -200, 200)), "int8")

    def dense(x: Symbol, outputs: int) -> Symbol:
        weight = layers.parameter_of((outputs, x.shape[-1]), "int8", -99, 99)
        made = layers.hidden("FullyConnected", x, weight, num_hidden=outputs, no_bias=True, flatten=False)
        return layers.requantized(made, "int8")

    tokens = dense(x, channels)
    maps = layers.hidden("Reshape", layers.hidden("transpose", tokens, axes=(0, 2, 1)), shape=(0, 0, 5, 7))
    weight = layers.parameter_of((channels, 1, 3, 3), "int8", -99, 99)
    attributes = {"kernel": (3, 3), "pad": (1, 1), "num_filter": channels, "num_group": channels, "no_bias": True}
    maps = layers.requantized(layers.hidden("Convolution", maps, weight, **attributes), "int8")
    flat = layers.hidden("Reshape", maps, shape=(0, 0, -1))
    return dense(layers.hidden("transpose", flat, axes=(0, 2, 1)), 16)


@pytest.mark.parametrize("channels", [32, 20])
def test_compiled_integers_are_the_same(runner: Runner, channels: int) -> None:
    layers = Layers()
    layers.finish(hybrid(layers, channels))
    layers.check(runner=runner)


def test_nothing_moves_but_into_a_border() -> None:
    """A map has a border in memory, into which tokens are copied; what a map gives is read where it is."""
    layers = Layers()
    layers.finish(hybrid(layers))
    calls = explain(layers.graph(), []).calls
    assert not [call for call in calls if "transpose" in call.operators]
    assert len([call for call in calls if "Reshape" in call.operators]) <= 1
