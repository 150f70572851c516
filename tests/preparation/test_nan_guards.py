"""What guards a softmax against NaN goes; what asks about other tensors stays."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.preparation import prepare
from mrt.preparation.nan_guards import NanGuards
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.finite import IsInf, IsNan
from mrt.symbol.operators.functions import Exp
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.selection import Where

SHAPE = (1, 3, 4)


def guarded(inner: Operator, tells: Operator, swapped: bool = False, fill: float = 0.0) -> Graph:
    """relu(where(tells(Y), fill, Y)) of Y, what `inner` makes of the input."""
    builder = GraphBuilder()
    value = builder.apply(inner, [builder.input("x", TensorType(SHAPE))], "value")
    asked = builder.apply(tells, [value], "asked")
    other = builder.parameter("other", np.full((), fill, np.float32))
    chosen = builder.apply(Where(), [asked, value, other] if swapped else [asked, other, value], "guard")
    return builder.graph([builder.apply(Relu(), [chosen], "read")])


def test_the_guard_of_a_softmax_goes(assert_same_outputs) -> None:
    graph = guarded(Softmax(axis=-1), IsNan(), fill=7.0)
    result = NanGuards()(graph)
    assert [symbol.op for symbol in result.operators] == ["softmax", "relu"]
    assert_same_outputs(graph, result)


@pytest.mark.parametrize(
    "graph",
    [
        guarded(Exp(), IsNan()),
        guarded(Softmax(axis=-1), IsInf()),
        guarded(Softmax(axis=-1), IsNan(), swapped=True),
    ],
)
def test_others_stay(graph: Graph) -> None:
    assert "where" in {symbol.op for symbol in NanGuards()(graph).operators}


def test_a_guard_before_which_the_graph_is_cut_stays() -> None:
    graph = guarded(Softmax(axis=-1), IsNan())
    assert "where" in {symbol.op for symbol in NanGuards(frozenset({"guard"}))(graph).operators}
    assert "where" not in {symbol.op for symbol in prepare(graph).graph.operators}
