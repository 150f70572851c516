"""What symbols compute alike is computed once; what has a name of its own, or differs, stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mrt.preparation import prepare
from mrt.preparation.share_equal import ShareEqual
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.functions import Exp
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.scalar import MulScalar

Check = Callable[[Graph, Graph], None]
SHAPE = (1, 6)


def masked_layers(second: np.ndarray) -> Graph:
    """Two layers whose results are multiplied by masks, exp(2 x) times a constant each; `second` is the second's."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType(SHAPE))
    y: Symbol = x
    for layer, constant in enumerate((np.arange(6, dtype=np.float32)[None], second)):
        doubled = builder.apply(MulScalar(scalar=2.0), [x], f"doubled{layer}")
        grown = builder.apply(Exp(), [doubled], f"grown{layer}")
        mask = builder.apply(BroadcastMul(), [grown, builder.parameter(f"c{layer}", constant)], f"mask{layer}")
        y = builder.apply(ElemwiseAdd(), [y, mask], f"layer{layer}")
    return builder.graph([y])


def test_a_mask_of_each_layer_is_computed_once(assert_same_outputs: Check) -> None:
    graph = masked_layers(np.arange(6, dtype=np.float32)[None])
    shared = ShareEqual()(graph)
    assert [symbol.name for symbol in shared.operators] == ["doubled0", "grown0", "mask0", "layer0", "layer1"]
    assert list(shared.parameters) == ["c0"]
    assert_same_outputs(graph, shared)


@pytest.mark.parametrize("second", [np.ones((1, 6), np.float32), np.ones((1, 1), np.float32)])
def test_parameters_of_other_values_or_shapes_differ(second: np.ndarray, assert_same_outputs: Check) -> None:
    graph = masked_layers(second)
    shared = ShareEqual()(graph)
    assert shared.count_operators() == {"_mul_scalar": 1, "exp": 1, "broadcast_mul": 2, "elemwise_add": 2}
    assert_same_outputs(graph, shared)


def test_outputs_and_layers_keep_their_names(assert_same_outputs: Check) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType(SHAPE))
    weight = builder.parameter("weight", np.eye(6, dtype=np.float32))
    layers = [builder.apply(FullyConnected(6, no_bias=True), [x, weight], f"layer{i}") for i in range(2)]
    inner = [builder.apply(Exp(), [layer], f"inner{i}") for i, layer in enumerate(layers)]
    outputs = [builder.apply(Exp(), [x], f"output{i}") for i in range(2)]
    graph = builder.graph([*outputs, builder.apply(BroadcastAdd(), inner, "sum")])
    shared = ShareEqual()(graph)
    assert [symbol.name for symbol in shared.operators] == [symbol.name for symbol in graph.operators]
    assert [symbol.name for symbol in shared.outputs] == ["output0", "output1", "sum"]
    assert_same_outputs(graph, shared)


def test_later_twins_of_an_output_are_the_output(assert_same_outputs: Check) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType(SHAPE))
    before, output, behind = (builder.apply(Exp(), [x], name) for name in ("before", "output", "behind"))
    sums = [builder.apply(ElemwiseAdd(), [output, twin], f"sum_{twin.name}") for twin in (before, behind)]
    graph = builder.graph([before, output, *sums])
    shared = ShareEqual()(graph)
    assert shared.count_operators() == {"exp": 2, "elemwise_add": 2}
    assert [symbol.name for symbol in shared.outputs] == ["before", "output", "sum_before", "sum_behind"]
    assert_same_outputs(graph, shared)


def test_preparation_shares() -> None:
    prepared = prepare(masked_layers(np.arange(6, dtype=np.float32)[None])).graph
    assert prepared.count_operators() == {"elementwise_region": 1, "broadcast_mul": 1, "elemwise_add": 2}
