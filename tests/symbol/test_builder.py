"""Names in graphs that are rewritten: each has one, and keeps it where it is kept."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import GraphError
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType, find_operator
from mrt.symbol.builder import rewrite_graph

RELU, NEGATIVE = find_operator("relu")(), find_operator("negative")()


def chain(*names: str) -> Graph:
    """Relus of these names behind each other, and a sum with a parameter."""
    builder = GraphBuilder()
    found = builder.input("x", TensorType((2, 3), "int8"))
    for name in names:
        found = builder.apply(RELU, [found], name)
    weight = builder.parameter("weight", np.ones((2, 3), np.int8))
    return builder.graph([builder.apply(find_operator("elemwise_add")(), [found, weight], "sum")])


def test_what_does_not_change_is_given_back() -> None:
    graph = chain("a", "b", "c")
    assert rewrite_graph(graph, lambda symbol, inputs, builder: None) is graph
    assert rewrite_graph(graph, lambda symbol, inputs, builder: symbol if symbol.name == "b" else None) is graph


def test_what_is_in_front_of_a_change_stays_itself() -> None:
    graph = chain("a", "b", "c")

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        return builder.apply(NEGATIVE, inputs, symbol.name, symbol.origin) if symbol.name == "b" else None

    found = rewrite_graph(graph, rewrite)
    assert [(s.name, s.op) for s in found.operators][:3] == [("a", "relu"), ("b", "negative"), ("c", "relu")]
    assert found.by_name["a"] is graph.by_name["a"] and found.by_name["c"] is not graph.by_name["c"]
    assert found.value(found.by_name["weight"]) is graph.value(graph.by_name["weight"])


def test_operators_that_a_rewrite_is_not_about_are_kept() -> None:
    """They are not shown, and get their types of what stands in front of them."""
    graph, shown = chain("a", "b", "c"), []

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        shown.append(symbol.name)
        return builder.apply(find_operator("Cast")(dtype="int32"), [inputs[0].inputs[0]], symbol.name)

    found = rewrite_graph(graph, rewrite, (type(find_operator("elemwise_add")()),))
    assert shown == ["sum"] and found.by_name["b"] is graph.by_name["b"] and "c" not in found.by_name
    shown.clear()
    assert rewrite_graph(graph, rewrite, (type(NEGATIVE),)) is graph and not shown

    def widened(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        return builder.apply(find_operator("Cast")(dtype="int32"), inputs, symbol.name) if symbol.name == "a" else None

    narrow = Graph(graph.inputs, graph.by_name["sum"].inputs[:1], graph.parameters)
    types = [symbol.type.dtype for symbol in rewrite_graph(narrow, widened, (type(RELU),)).operators]
    assert types == ["int32", "int32", "int32"]


@pytest.mark.parametrize("asked", ["a", "c", "x", "weight"])
def test_a_name_that_another_has_gets_a_number(asked: str) -> None:
    """Of what was there before, of what comes behind, and of variables."""
    graph = chain("a", "b", "c")

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        return builder.apply(NEGATIVE, inputs, asked) if symbol.name == "b" else None

    names = [symbol.name for symbol in rewrite_graph(graph, rewrite).operators]
    assert names == ["a", f"{asked}_1", "c", "sum"]


def test_the_name_of_what_is_gone_is_given_to_who_asks_for_it_only() -> None:
    """What keeps a name keeps its values: no other gets it by chance."""
    graph = chain("a", "a_1", "c")

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        match symbol.name:
            case "a_1":
                return inputs[0]
            case "c":
                return builder.apply(NEGATIVE, [builder.apply(NEGATIVE, inputs, "a")], "a_1")
        return None

    assert [symbol.name for symbol in rewrite_graph(graph, rewrite).operators] == ["a", "a_2", "a_1", "sum"]


def test_two_of_one_name_are_refused() -> None:
    builder = GraphBuilder()
    builder.input("x", TensorType((2,), "int8"))
    with pytest.raises(GraphError, match="two symbols are called x"):
        builder.input("x", TensorType((2,), "int8"))
