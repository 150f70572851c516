"""The order of the rewrites is checked, what they know is derived once for each graph, and they say what they leave.

Those that are written for one record are shown its operators.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from compiled import op
from requantized import requantized

from mrt.backend.explain import compiled_text, explain
from mrt.backend.machine import Machine
from mrt.backend.rewrites import REWRITES, apply_rewrites
from mrt.backend.rewrites.bias_into_sum import BiasIntoSum
from mrt.backend.rewrites.clip_before_scaling import ClipBeforeScaling
from mrt.backend.rewrites.clip_limits_as_parameters import ClipLimitsAsParameters
from mrt.backend.rewrites.known_bounds import Bounds, known_bounds
from mrt.backend.rewrites.merge_slices import MergeSlices
from mrt.backend.rewrites.narrow_to_int16 import NarrowToInt16
from mrt.backend.rewrites.rewrite import Facts, Rewrite
from mrt.backend.rewrites.widen_clips import WidenClips
from mrt.errors import GraphError
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol, TensorType
from mrt.symbol.passes import run_passes

VNNI = Machine.of({"mcpu": "cascadelake"})
"""Requantizes vectors of int16."""


def clipped(highest: int) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((4,), "int32"))
    return builder.graph([builder.apply(op("clip", a_min=-3, a_max=highest), [x], "y")])


@pytest.mark.parametrize("late", [WidenClips, NarrowToInt16])
def test_a_pass_that_comes_too_late_is_named(late: type[Rewrite]) -> None:
    """Limits that are parameters are none that the pass would see."""
    with pytest.raises(GraphError, match=rf"{late().name} \(after clip_limits_as_parameters\).*y \(clip_to\)"):
        run_passes(clipped(5), [ClipLimitsAsParameters(), late()])


def test_bounds_are_derived_once_for_each_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Graph] = []

    def counted(graph: Graph, known: Bounds) -> dict[str, Interval]:
        asked.append(graph)
        return known_bounds(graph, known)

    monkeypatch.setattr("mrt.backend.rewrites.rewrite.known_bounds", counted)
    result, bounds = apply_rewrites(requantized(65534, 24, (0, 100), "uint8"), VNNI, {})
    assert len(asked) == len(set(map(id, asked))) <= len(REWRITES) + 1
    assert asked[-1] is result.graph and set(bounds) == {symbol.name for symbol in result.graph.symbols}


def test_what_is_found_in_a_graph_is_looked_for_once() -> None:
    facts, asked = Facts(), list[Graph]()

    def find(graph: Graph) -> int:
        asked.append(graph)
        return len(graph.operators)

    graphs = [clipped(5), clipped(7)]
    assert [facts.once(graph, find) for graph in (*graphs, *graphs)] == [1, 1, 1, 1]
    assert asked == graphs


def test_facts_of_one_graph_say_nothing_of_another() -> None:
    """Both have an operator y; a pass may be run on many graphs."""
    facts, widen = Facts(), WidenClips()
    for highest in (5, 7):
        assert facts.bounds(clipped(highest))["y"].max == highest
    for highest in (5, 2**31 - 1):
        (clip,) = widen(clipped(highest)).operators
        assert clip.operator == op("clip", a_min=-3, a_max=highest)


def test_what_was_known_before_a_rewrite_is_known_after_it() -> None:
    """A symbol that keeps its name keeps its values, so that what is proven of them is not derived anew."""
    graph = requantized(1, 9, (-127, 127), "int8")
    widen = WidenClips(Facts(known={"x": Interval.of(-5, 5, (65536,))}))
    before = widen.facts.bounds(graph)
    after = widen.facts.bounds(widen(graph))
    assert after["clipped"] is before["clipped"] and after["x"].max == 5


def slices(second: str) -> Graph:
    """The sum of a convolution of a slice, and something else."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8, 4, 4), "int8"))
    weight = builder.parameter("w", np.ones((8, 4, 1, 1), np.int8))
    layer = op("Convolution", kernel=(1, 1), num_filter=8, no_bias=True)
    first = builder.apply(layer, [builder.apply(op("slice_axis", axis=1, begin=0, end=4), [x]), weight])
    begin = 0 if second == "the same slice" else 4
    other = builder.apply(op("slice_axis", axis=1, begin=begin, end=begin + 4), [x])
    if second == "no product":
        other = builder.apply(op("Cast", dtype="int32"), [x], "wide")
    else:
        other = builder.apply(layer, [other, weight])
    return builder.graph([builder.apply(op("add_n"), [first, other], "total")])


def test_slices_that_are_not_merged_have_a_reason() -> None:
    assert not MergeSlices().run(slices("the other slice")).refusals
    for second, said in (("no product", "wide (Cast)"), ("the same slice", "all slices of one tensor")):
        (refusal,) = MergeSlices().run(slices(second)).refusals
        assert refusal.symbol == "total" and said in refusal.reason


def test_what_is_added_to_a_convolution_and_is_no_bias_has_a_reason() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 5, 5), "int8"))
    weight = builder.parameter("w", np.ones((8, 4, 1, 1), np.int8))
    layer = builder.apply(op("Convolution", kernel=(1, 1), num_filter=8, no_bias=True), [x, weight])
    one = builder.parameter("one", np.ones((1, 1, 5, 5), np.int32))
    graph = builder.graph([builder.apply(op("broadcast_add"), [layer, one], "total")])
    (refusal,) = BiasIntoSum().run(graph).refusals
    assert "(1, 1, 5, 5)" in refusal.reason and "(1, 8, 1, 1)" in refusal.reason


def scaled(factor: int = 4000, shift: int = 20, limits: tuple[int, int] = (0, 255), reader: str = "Cast") -> Graph:
    """clip((x * factor) >> shift) of an int32, and who reads it."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 32, 4, 4), "int32"))
    held = builder.apply(op("clip", a_min=-(2**18), a_max=2**18), [x])
    product = builder.apply(op("broadcast_mul"), [held, builder.parameter("f", np.array([[[[factor]]]], np.int32))])
    shifted = builder.apply(op("right_shift"), [product, builder.parameter("s", np.array([[[[shift]]]], np.int8))])
    found: Symbol = builder.apply(op("clip", a_min=limits[0], a_max=limits[1]), [shifted], "clipped")
    outputs = [builder.apply(op("Cast", dtype="uint8" if limits[0] == 0 else "int8"), [found])]
    if reader == "the shift":
        outputs.append(builder.apply(op("square"), [shifted]))
    elif reader == "an output":
        outputs.append(found)
    elif reader == "square":
        outputs.append(builder.apply(op("square"), [found], "squared"))
    return builder.graph(outputs)


def test_scaling_in_16_bits_comes_after_what_moves_clips() -> None:
    narrow = NarrowToInt16(Facts(VNNI))
    with pytest.raises(GraphError, match=r"clip_before_scaling \(after narrow_to_int16\)"):
        run_passes(scaled(), [narrow, ClipBeforeScaling()])


@pytest.mark.parametrize(
    ("graph", "machine", "said"),
    [
        (scaled(), VNNI, ""),
        (scaled(), None, "no vector instructions"),
        (scaled(limits=(-127, 127)), None, "values may be negative"),
        (scaled(factor=40000, shift=24), VNNI, "[40000, 40000]"),
        (scaled(factor=255, shift=16), VNNI, "its least shift is 16"),
        (scaled(reader="the shift"), VNNI, "what it clips is read by others too"),
        (scaled(reader="an output"), VNNI, "an output of the graph"),
        (scaled(reader="square"), VNNI, "squared (square) reads it in 32 bits"),
    ],
)
def test_what_is_not_scaled_in_16_bits_has_a_reason(graph: Graph, machine: Machine | None, said: str) -> None:
    result = NarrowToInt16(Facts(machine)).run(graph)
    reasons = [refusal.reason for refusal in result.refusals if refusal.symbol == "clipped"]
    assert any(s.op.endswith("int16") for s in result.graph.operators) is not bool(said)
    assert [said in reason for reason in reasons] == ([True] if said else [])


def test_refusals_are_told_of_what_is_compiled() -> None:
    explanation = explain(scaled(reader="square"), [], {"mcpu": "cascadelake"})
    text = compiled_text(explanation)
    assert "clipped: narrow_to_int16: squared (square) reads it in 32 bits" in text.partition("Left alone")[2]
    assert "Left alone" not in compiled_text(explain(clipped(5), []))


@pytest.mark.parametrize(
    "rewrite", [each for each in REWRITES if "__orig_bases__" in vars(each)], ids=lambda rewrite: rewrite.__name__
)
def test_a_rewrite_of_one_record_is_about_it(rewrite: Any) -> None:
    (base,) = rewrite.__orig_bases__
    assert rewrite.about == get_args(base)
