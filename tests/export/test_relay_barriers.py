"""Rules of Relay's optimizer that would move a multiplication or join constants are kept from applying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from exported import facts
from relay_exported import RelayModule, exported, run
from relay_rules import applicable, without_copies

from mrt.symbol import GraphBuilder, Symbol, TensorType, find_operator

SHAPE = (1, 3, 5, 5)
Build = Callable[[GraphBuilder, Symbol], Symbol]


def apply(builder: GraphBuilder, op: str, *inputs: Symbol, **attributes: Any) -> Symbol:
    return builder.apply(find_operator(op)(**attributes), inputs)


def constants(builder: GraphBuilder, count: int) -> list[Symbol]:
    """Parameters by channel that differ, each (1, 3, 1, 1)."""
    values = [np.array([place + 2, place + 3, 5], np.int32).reshape(1, 3, 1, 1) for place in range(count)]
    return [builder.parameter(f"c{place}", array) for place, array in enumerate(values)]


def convolution(builder: GraphBuilder, x: Symbol) -> Symbol:
    weight = builder.parameter("weight", np.arange(27).reshape(3, 3, 3, 1).astype(np.int8))
    bias = builder.parameter("bias", np.array([100, -7, 30], np.int32))
    return apply(builder, "Convolution", x, weight, bias, kernel=(3, 1), num_filter=3)


def sum_then_factor(builder: GraphBuilder, x: Symbol) -> Symbol:
    (c,) = constants(builder, 1)
    return apply(builder, "broadcast_mul", apply(builder, "relu", convolution(builder, x)), c)


def sums_added_then_factor(builder: GraphBuilder, x: Symbol) -> Symbol:
    """Through an addition of tensors, and transposes that cancel."""
    (c,) = constants(builder, 1)
    y = convolution(builder, x)
    total = apply(builder, "elemwise_add", y, apply(builder, "relu", y))
    there = apply(builder, "transpose", total, axes=(0, 2, 3, 1))
    return apply(builder, "broadcast_mul", apply(builder, "transpose", there, axes=(0, 3, 1, 2)), c)


def factor_then_sum(builder: GraphBuilder, x: Symbol) -> Symbol:
    """With an addition between, which FoldScaleAxis would divide by the factor."""
    a, b = constants(builder, 2)
    scaled = apply(builder, "broadcast_mul", apply(builder, "Cast", x, dtype="int32"), a)
    return convolution(builder, apply(builder, "relu", apply(builder, "broadcast_add", scaled, b)))


def dense_then_factor(builder: GraphBuilder, x: Symbol) -> Symbol:
    weight = builder.parameter("weight", np.arange(150).reshape(2, 75).astype(np.int16))
    y = apply(builder, "FullyConnected", apply(builder, "Flatten", x), weight, num_hidden=2, no_bias=True)
    return apply(builder, "broadcast_mul", y, builder.parameter("c", np.array([[3, 5]], np.int32)))


def sum_of_constant_times_constant(builder: GraphBuilder, x: Symbol) -> Symbol:
    a, b = constants(builder, 2)
    return apply(builder, "broadcast_mul", apply(builder, "broadcast_add", x, a), b)


def constants_in_a_row(builder: GraphBuilder, x: Symbol) -> Symbol:
    a, b, c, d = constants(builder, 4)
    x = apply(builder, "broadcast_mul", apply(builder, "broadcast_mul", x, a), b)
    return apply(builder, "broadcast_add", apply(builder, "broadcast_add", apply(builder, "abs", x), c), d)


def binomial(builder: GraphBuilder, x: Symbol) -> Symbol:
    y = apply(builder, "relu", x)
    squares = apply(builder, "elemwise_add", apply(builder, "elemwise_mul", x, y), apply(builder, "square", x))
    return apply(builder, "elemwise_add", squares, apply(builder, "square", y))


@pytest.mark.parametrize(
    ("build", "rules"),
    [
        (sum_then_factor, ["backward"]),
        (sums_added_then_factor, ["backward"]),
        (factor_then_sum, ["forward"]),
        (dense_then_factor, ["backward"]),
        (sum_of_constant_times_constant, ["switch"]),
        (constants_in_a_row, ["join", "join"]),
        (binomial, ["factor"]),
    ],
)
def test_each_rule_is_kept_from_applying(build: Build, rules: Sequence[str]) -> None:
    """It would apply to the same text without its copies, which give the same integers."""
    builder = GraphBuilder()
    graph = builder.graph([build(builder, builder.input("x", TensorType(SHAPE, "int8")))])
    module = exported(graph, facts(graph))
    bare = without_copies(module.text)
    assert [rule.partition(":")[0] for rule in applicable(bare, module.params)] == rules
    assert applicable(module.text, module.params) == []
    feeds = [{"x": np.full(SHAPE, end, np.int8)} for end in (-128, 127)]
    for found in (module, RelayModule(bare, module.params, module.inputs)):
        for (value,), feed in zip(run(found, feeds), feeds, strict=True):
            np.testing.assert_array_equal(value, graph.evaluate(feed)[0])


def test_a_text_without_products_has_no_copy() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType(SHAPE, "int8"))
    graph = builder.graph([apply(builder, "relu", convolution(builder, x))])
    assert "copy(" not in exported(graph, facts(graph)).text
