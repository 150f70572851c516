"""Every rule gives the same integers as before, for every integer of its data, by fewer operators, or says why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.errors import QuantizationError
from mrt.simplification import RULES, Simplified, SimplifyChains
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol, TensorType, find_operator
from mrt.symbol.bounds import analyse_bounds

Spec = tuple[str, Any]
OPERATORS = {"mul": "broadcast_mul", "add": "broadcast_add", "shift": "right_shift"}


def applied(builder: GraphBuilder, x: Symbol, spec: Spec) -> Symbol:
    """An operator on `x` (256, 2): a constant by channel or for all, limits, a dtype, or another tensor."""
    name, value = spec
    match name:
        case "mul" | "add" | "shift" | "broadcast_maximum" | "broadcast_minimum":
            dtype = "int32" if name.startswith("broadcast") else "int8" if name == "shift" else "int64"
            array = np.array([value] if np.ndim(value) else [[value]], dtype)
            narrow = array.astype("int32") if dtype == "int64" else array
            return builder.apply(find_operator(OPERATORS.get(name, name))(), [x, builder.parameter("c", narrow)])
        case "clip":
            return builder.apply(find_operator("clip")(a_min=value[0], a_max=value[1]), [x])
        case "cast":
            return builder.apply(find_operator("Cast")(dtype=value), [x])
    return builder.apply(find_operator(name)(), [x])


def graph_of(specs: Sequence[Spec], others: Sequence[Sequence[Spec]] = ()) -> Graph:
    """A chain on every int8, in two channels; `sum` adds the next of `others`, chains on the same in reverse."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((256, 2), "int8"))
    rest = [(builder.input(f"y{i}", TensorType((256, 2), "int8")), chain) for i, chain in enumerate(others)]
    for spec in specs:
        if spec[0] == "sum":
            other, chain = rest.pop(0)
            for each in chain:
                other = applied(builder, other, each)
            x = builder.apply(find_operator("elemwise_add")(), [x, other])
        else:
            x = applied(builder, x, spec)
    # A reader that is no step of a chain, so that the chain may end in any dtype.
    return builder.graph([builder.apply(find_operator("Flatten")(), [x])])


def simplified(graph: Graph) -> Simplified:
    """What the pass makes of a graph, checked to give the same integers within proven bounds."""
    intervals = {s.name: Interval.of(-128, 127, s.shape) for s in graph.inputs}
    before = analyse_bounds(graph, intervals)
    found = SimplifyChains(before).run(graph)
    every = np.stack([np.arange(-128, 128)] * 2, axis=1).astype(np.int8)
    feeds = {s.name: every if s.name == "x" else every[::-1] for s in graph.inputs}
    expected, values = dict(graph.walk(feeds)), dict(found.graph.walk(feeds))
    np.testing.assert_array_equal(values[found.graph.outputs[0]], expected[graph.outputs[0]])
    after = analyse_bounds(found.graph, intervals)
    for symbol, value in values.items():
        assert (value >= after[symbol.name].lo).all() and (value <= after[symbol.name].hi).all()
        if symbol.name in graph.by_name and not symbol.is_variable:  # a name stands for the same values
            np.testing.assert_array_equal(value, expected[graph.by_name[symbol.name]])
    return found


def operators(graph: Graph) -> list[str]:
    short = {full: name for name, full in OPERATORS.items()}
    return [short.get(symbol.op, symbol.op) for symbol in graph.operators][:-1]


REWRITTEN: dict[str, tuple[list[Spec], list[str], str]] = {
    "x 1": ([("add", 3), ("mul", 1), ("relu", 0)], ["add", "relu"], "skip identity"),
    "+ 0": ([("mul", 3), ("add", (0, 0)), ("relu", 0)], ["mul", "relu"], "skip identity"),
    "narrow storage read by a sum": (
        [("mul", 2), ("clip", (-3, 9)), ("cast", "int8"), ("add", 1)], ["mul", "clip", "add"], "skip identity"
    ),
    "a shift by 0": ([("add", 1), ("shift", 0)], ["add"], "drop round"),
    "an idle clip": ([("mul", 2), ("clip", (-256, 254)), ("add", 1)], ["mul", "add"], "drop idle clip"),
    "an idle relu": ([("add", 128), ("relu", 0)], ["add"], "drop idle clip"),
    "clip of clip": ([("mul", 3), ("clip", (-50, 90)), ("clip", (-60, 70))], ["mul", "clip"], "merge clips"),
    "clips apart": ([("mul", 3), ("clip", (-50, 90)), ("clip", (100, 120))], ["mul", "clip"], "merge clips"),
    "clip of relu": ([("mul", 3), ("relu", 0), ("clip", (-7, 70))], ["mul", "clip"], "merge clips"),
    "products": ([("mul", (3, -5)), ("mul", (7, 2))], ["mul"], "merge products"),
    "a product and its shift": ([("add", 7), ("mul", 4), ("shift", 6)], ["add", "shift"], "merge products"),
    "sums": ([("add", (100, -3)), ("add", (-90, 7))], ["add"], "merge sums"),
    "product of sum of product": ([("mul", 3), ("add", (5, -7)), ("mul", (2, -9))], ["mul", "add"], "fold product"),
    "relu(x) * s": ([("mul", (3, -4)), ("relu", 0), ("mul", 5)], ["mul", "relu"], "scale before relu"),
    "relu(x + b) * s": (
        [("mul", (3, -4)), ("add", 30), ("relu", 0), ("mul", 5)], ["mul", "add", "relu"], "scale before relu"
    ),
    "relu, requantized": (
        [("add", (50, -20)), ("relu", 0), ("mul", (300, 77)), ("shift", (7, 6)), ("clip", (0, 255)), ("cast", "uint8")],
        ["add", "mul", "shift", "clip", "Cast"], "drop relu",
    ),
    "relu, moved, limited": (
        [("add", 9), ("relu", 0), ("mul", 20), ("shift", 3), ("add", -128), ("clip", (-128, 127))],
        ["add", "mul", "shift", "clip"], "drop relu",
    ),
    "a crop by channel": (
        [("add", 1), ("broadcast_maximum", (-40, -80)), ("broadcast_minimum", (30, 60)), ("mul", (6, 3)), ("shift", 4)],
        ["add", "mul", "shift", "clip"], "clip behind round",
    ),
    "a crop that joins the next": (
        [("mul", 3), ("clip", (-100, 200)), ("mul", 5), ("add", (1, 2)), ("mul", 2), ("shift", 4), ("clip", (0, 255))],
        ["mul", "add", "shift", "clip"], "clip behind round",
    ),
    "a zero point that is taken off again": (
        [("mul", 3), ("add", 128), ("clip", (0, 255)), ("add", -128), ("mul", 5)], ["mul", "clip", "mul"],
        "clip behind add",
    ),
    "a clip between sums": (
        [("mul", 3), ("add", (7, -7)), ("clip", (-90, 80)), ("add", 11)], ["mul", "add", "clip"], "clip behind add"
    ),
    "a shift of the output": (
        [("add", (5, -6)), ("shift", (2, 3)), ("clip", (-20, 25)), ("add", 3)],
        ["add", "shift", "clip"], "carry shift",
    ),
    "a shift of the output behind a product": (
        [("add", (5, -6)), ("mul", (100, 3)), ("shift", 6), ("add", 128)], ["mul", "add", "shift"], "carry shift"
    ),
    "a shift of the output into a sum before a product": (
        [("add", (5, -6)), ("mul", (4, 64)), ("shift", 6), ("relu", 0), ("add", -7)],
        ["add", "shift", "clip"], "carry shift",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rule_gives_the_same_integers_by_fewer_operators(name: str) -> None:
    specs, expected, rule = REWRITTEN[name]
    found = simplified(graph_of(specs))
    assert sorted(operators(found.graph)) == sorted(expected), found.graph
    assert rule in [each.rule for each in found.rewritten]
    assert any(note.startswith(f"simplified by {rule}: ") for note in found.notes)


LEFT_ALONE: dict[str, tuple[list[Spec], str]] = {
    "a rounding between": (
        [("shift", 2), ("add", 3), ("mul", 5)], "fold product: a rounding stands between"
    ),
    "a rounding before the relu": (
        [("shift", 2), ("relu", 0), ("mul", 5)], "scale before relu: a rounding stands between"
    ),
    "a negative scale": (
        [("mul", 3), ("relu", 0), ("mul", (5, -5))], "scale before relu: a factor is not positive"
    ),
    "a factor of 0": ([("mul", 3), ("relu", 0), ("mul", (5, 0))], "scale before relu: a factor is not positive"),
    "a product beyond 32 bits": (
        [("add", -100), ("relu", 0), ("mul", 2**31 // 28), ("shift", 20), ("clip", (0, 255))],
        "drop relu: broadcast_mul would need 36 bits, 32 are allowed",
    ),
    "a relu and a negative factor": (
        [("add", 1), ("relu", 0), ("mul", -3), ("shift", 2), ("clip", (0, 9))], "drop relu: a factor is negative"
    ),
    "a clip that the product needs": (
        [("mul", 1000), ("clip", (-3000, 3000)), ("mul", 2**31 // 3001), ("shift", 20), ("clip", (-127, 127))],
        "clip behind round: broadcast_mul would need 38 bits, 32 are allowed",
    ),
    "a clip and a negative factor": (
        [("clip", (-30, 30)), ("mul", -3), ("shift", 2), ("clip", (-20, 9))],
        "clip behind round: a factor is not positive",
    ),
    "no sum to join": (
        [("mul", 77), ("shift", 5), ("add", 3)],
        "carry shift: no sum stands before the rounding that could take it",
    ),
    "a sum that grows beyond 32 bits": (
        [("add", 1), ("shift", 24), ("add", 200)], "carry shift: a constant needs more than 32 bits"
    ),
    "limits that would be by channel": (
        [("mul", 3), ("add", 7), ("clip", (-90, 80)), ("add", (11, 12))],
        "clip behind add: its limits would be by channel",
    ),
    "a crop that stays by channel": (
        [("add", 1), ("broadcast_maximum", (-40, -80)), ("broadcast_minimum", (30, 60)), ("mul", 3), ("shift", 3)],
        "clip behind round: its limits stay by channel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_left_alone_has_a_reason(name: str) -> None:
    specs, reason = LEFT_ALONE[name]
    graph = graph_of(specs)
    found = simplified(graph)
    assert operators(found.graph) == operators(graph) and not found.rewritten
    assert reason in [refusal.reason for refusal in found.refusals]
    assert any(note.startswith(f"not simplified by {reason}: ") for note in found.notes)


@pytest.mark.parametrize(
    ("specs", "other", "expected", "reason"),
    [
        ([("mul", 3), ("sum", 0), ("mul", (5, -2))], [("mul", (7, 4))], ["mul", "mul", "elemwise_add"], ""),
        ([("mul", 3), ("sum", 0), ("mul", 5)], [("add", 2)], None, "scale before sum: the other operand is no product"),
        ([("mul", 3), ("shift", 2), ("sum", 0), ("mul", 5)], [("mul", 7)], None,
         "scale before sum: a rounding stands between"),
    ],
)  # fmt: skip
def test_a_factor_goes_into_the_operands_of_a_sum(
    specs: list[Spec], other: list[Spec], expected: list[str] | None, reason: str
) -> None:
    graph = graph_of(specs, [other])
    found = simplified(graph)
    assert sorted(operators(found.graph)) == sorted(expected or operators(graph))
    assert [refusal.reason for refusal in found.refusals] == ([reason] if reason else [])


def test_what_others_read_is_no_part_of_a_chain() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((256, 2), "int8"))
    first = applied(builder, x, ("mul", 3))
    second = applied(builder, first, ("mul", 5))
    total = builder.apply(find_operator("elemwise_add")(), [second, first])
    graph = builder.graph([builder.apply(find_operator("Flatten")(), [total])])
    found = simplified(graph)
    assert found.graph.operators == graph.operators and not found.rewritten


def test_an_output_of_the_graph_keeps_its_name() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((256, 2), "int8"))
    graph = builder.graph([applied(builder, x, ("clip", (-128, 127)))])
    assert simplified(graph).graph.outputs == graph.outputs
    longer = builder.graph([applied(builder, applied(builder, x, ("mul", 2)), ("mul", 3))])
    found = simplified(longer).graph
    assert [s.name for s in found.outputs] == [s.name for s in longer.outputs] and len(found.operators) == 1


def test_a_chain_of_thousands_of_sums_is_walked() -> None:
    builder = GraphBuilder()
    x = total = builder.input("x", TensorType((1, 2), "int8"))
    for _ in range(3000):
        total = builder.apply(find_operator("elemwise_add")(), [x, total])
    graph = builder.graph([total])
    bounds = analyse_bounds(graph, {"x": Interval.of(-128, 127, (1, 2))})
    assert len(SimplifyChains(bounds).run(graph).graph.operators) == 3000


CONSTANT = st.one_of(st.integers(-9, 9), st.tuples(st.integers(-40, 40), st.integers(-40, 40)))
STEP = st.one_of(
    st.tuples(st.sampled_from(["mul", "add"]), CONSTANT),
    st.tuples(st.just("shift"), st.one_of(st.integers(0, 6), st.tuples(st.integers(0, 6), st.integers(0, 6)))),
    st.tuples(st.just("clip"), st.tuples(st.integers(-300, 0), st.integers(0, 300))),
    st.tuples(st.sampled_from(["broadcast_maximum"]), st.tuples(st.integers(-99, 0), st.integers(-99, 0))),
    st.tuples(st.sampled_from(["broadcast_minimum"]), st.tuples(st.integers(0, 99), st.integers(0, 99))),
    st.just(("relu", 0)),
    st.just(("sum", 0)),
)  # fmt: skip


@given(st.lists(STEP, min_size=1, max_size=9), st.lists(st.lists(STEP, max_size=3), min_size=9, max_size=9))
def test_random_chains_keep_every_integer(specs: list[Spec], others: list[list[Spec]]) -> None:
    wide: list[Spec] = [("cast", "int32"), *specs]
    beside = [[("cast", "int32"), *(each for each in chain if each[0] != "sum")] for chain in others]
    graph = graph_of(wide, beside[: sum(spec[0] == "sum" for spec in specs)])
    try:
        analyse_bounds(graph, {s.name: Interval.of(-128, 127, s.shape) for s in graph.inputs})
    except QuantizationError:
        return  # beyond 32 bits to begin with
    found = simplified(graph)
    assert len(found.graph.operators) <= len(graph.operators)


def test_every_rule_has_a_case() -> None:
    shown = {rule for _, _, rule in REWRITTEN.values()} | {"scale before sum"}
    assert {rule.name for rule in RULES} == shown
