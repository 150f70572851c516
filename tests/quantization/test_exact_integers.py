"""What a float network computes of integers alone keeps every integer, beyond what a quantizer's bits would hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.quantization.exact_integers import is_exact
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.arrangement import Repeat
from mrt.symbol.operators.broadcast import BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul
from mrt.symbol.operators.functions import Abs
from mrt.symbol.operators.integer import Cast, Dequantize
from mrt.symbol.operators.integer_math import FloorDivide
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.scalar import MinusScalar, MulScalar, RMinusScalar
from mrt.symbol.operators.selection import ArgMax, BroadcastMaximum, Where
from mrt.symbol.operators.transform import Take, Transpose

IDS = np.random.default_rng(0).integers(-30000, 30001, (2, 7)).astype(np.int64)
CONFIG = QuantizationConfig(inputs={"ids": InputConfig(dtype="int32", range=(-30000, 30000))})
Make = Callable[[GraphBuilder, Symbol], Symbol]


def _of(make: Make) -> Graph:
    builder = GraphBuilder()
    return builder.graph([make(builder, builder.input("ids", TensorType((2, 7), "int64")))])


def _expanded(graph: Graph, config: QuantizationConfig = CONFIG) -> IntegerGraph:
    names = [symbol.name for symbol in (*graph.inputs, *graph.operators)]
    return expand_graph(graph, dict.fromkeys(names, Range(-30000.0, 30000.0)), config)


def _row(builder: GraphBuilder, values: list[int], dtype: str = "int64") -> Symbol:
    return builder.parameter("row", np.array([values], dtype))


def _where(builder: GraphBuilder, ids: Symbol) -> Symbol:
    positive = builder.apply(Clip(a_min=0.0, a_max=1.0), [ids], "positive")
    return builder.apply(Where(), [positive, ids, _row(builder, [-29999])], "y")


def _places(builder: GraphBuilder, ids: Symbol) -> Symbol:
    table = builder.parameter("table", np.arange(40000, 40070, 10).astype(np.int32))
    return builder.apply(Take(), [table, builder.apply(ArgMax(axis=1), [ids], "place")], "y")


CASES: dict[str, tuple[Make, Callable[[Array], Array]]] = {
    "minus": (lambda b, x: b.apply(MinusScalar(3), [x], "y"), lambda x: x - 3),
    "negative": (lambda b, x: b.apply(RMinusScalar(1), [x], "y"), lambda x: 1 - x),
    "times": (
        lambda b, x: b.apply(MulScalar(70000), [b.apply(Clip(-9, 9), [x], "c")], "y"),
        lambda x: x.clip(-9, 9) * 70000,
    ),
    "row": (lambda b, x: b.apply(BroadcastSub(), [x, _row(b, [*range(7)])], "y"), lambda x: x - np.arange(7)),
    "distance": (
        lambda b, x: b.apply(Abs(), [b.apply(BroadcastMul(), [x, _row(b, [5, -5, 1, 0, 3, 7, 9])], "p")], "y"),
        lambda x: np.abs(x * [5, -5, 1, 0, 3, 7, 9]),
    ),
    "twice": (lambda b, x: b.apply(ElemwiseAdd(), [x, x], "y"), lambda x: x + x),
    "square": (lambda b, x: b.apply(ElemwiseMul(), [x, x], "y"), lambda x: x * x),
    "largest": (lambda b, x: b.apply(BroadcastMaximum(), [x, _row(b, [17])], "y"), lambda x: np.maximum(x, 17)),
    "half": (lambda b, x: b.apply(FloorDivide(), [x, _row(b, [2])], "y"), lambda x: x // 2),
    "sum": (
        lambda b, x: b.apply(Sum(axis=(1,)), [b.apply(Repeat(repeats=3, axis=1), [x], "r")], "y"),
        lambda x: 3 * x.sum(1),
    ),
    "where": (_where, lambda x: np.where(x > 0, x, -29999)),
    "table": (_places, lambda x: 40000 + 10 * x.argmax(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_integer_is_kept(name: str) -> None:
    make, wanted = CASES[name]
    integer = _expanded(_of(make))
    (found,) = integer.graph.evaluate({"ids": IDS.astype(np.int32)})
    (output,) = integer.outputs
    np.testing.assert_array_equal(found.astype(np.int64) * output.step, wanted(IDS))


def test_integers_that_stand_for_reals_are_none_of_these() -> None:
    builder = GraphBuilder()
    given = builder.input("ids", TensorType((2, 7), "int8"))
    moved = builder.apply(Transpose(axes=(1, 0)), [given], "moved")
    scale, zero = builder.parameter("s", np.float32(0.5)), builder.parameter("z", np.int8(3))
    real = builder.apply(Dequantize(), [moved, scale, zero], "real")
    cut = builder.apply(Cast(dtype="int32"), [real], "cut")
    plain = builder.apply(MinusScalar(1), [given], "plain")
    after = builder.apply(MinusScalar(1), [cut], "after")
    graph = builder.graph([after, plain])
    assert [symbol.name for symbol in graph.operators if is_exact(symbol)] == ["plain"]
