"""Squares of centred integers, as normalizations of maps add them up, are made where they are added up."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import assert_same_values, op
from layers import kernel_texts

from mrt.backend import TvmRunner
from mrt.backend.fusion.regions import find_regions
from mrt.backend.machine import Machine
from mrt.backend.rewrites import apply_rewrites
from mrt.backend.rewrites.made_again import MadeAgain
from mrt.backend.rewrites.squares import Squares
from mrt.symbol import Graph, GraphBuilder, Runner, TensorType

SHAPE = (1, 16, 9, 20)
MACHINE = Machine.of({"mcpu": "cascadelake"})


def spread(dtype: str = "int8", axes: tuple[int, ...] = (3,), reads: int = 1, convolved: bool = False) -> Graph:
    """What is left of a tensor without its means, and the sums of its squares; reads: of the squares."""
    builder = GraphBuilder()

    def number(name: str, value: int) -> object:
        return builder.parameter(name, np.full((1, 1, 1, 1), value, np.int16))

    x = builder.input("x", TensorType(SHAPE, dtype))
    if convolved:
        weight = builder.parameter("w", np.eye(SHAPE[1], dtype=np.int8)[:, :, None, None])
        product = builder.apply(op("Convolution", kernel=(1, 1), num_filter=SHAPE[1], no_bias=True), [x, weight])
        x = builder.apply(op("Cast", dtype=dtype), [builder.apply(op("clip", a_min=-127.0, a_max=127.0), [product])])
    total = builder.apply(op("sum", axis=(2, 3), keepdims=True), [x])
    centred = builder.apply(
        op("broadcast_sub"), [builder.apply(op("broadcast_mul"), [x, number("n", 180)]), total], "c"
    )
    short = builder.apply(op("right_shift"), [centred, number("by", 6)])
    square = builder.apply(op("broadcast_mul"), [short, short], "square")
    squares = builder.apply(op("sum", axis=axes, keepdims=True), [square])
    made = builder.apply(op("right_shift"), [squares, number("down", 2)])
    others = [builder.apply(op("relu"), [square]) for _ in range(reads - 1)]
    return builder.graph([made, builder.apply(op("right_shift"), [centred, number("twice", 8)]), *others])


def feeds(dtype: str = "int8") -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).choice([-127, -3, 0, 5, 127], SHAPE).astype(dtype)}


AXES = (3,), (2, 3), (1,), (1, 2, 3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_the_integers_stay(axes: tuple[int, ...], runner: Runner, turn: int) -> None:
    """Every other CPU reads what a convolution makes."""
    graph = spread(axes=axes)
    made, _ = apply_rewrites(graph, MACHINE, {})
    assert_same_values(graph, made.graph.evaluate(feeds()), graph.evaluate(feeds()))
    read = spread(axes=axes, convolved=(turn + AXES.index(axes)) % 2 == 0)
    assert_same_values(read, runner.prepare(read)(feeds()), read.evaluate(feeds()))


def test_sums_over_positions_read_bytes() -> None:
    """Neither the centred integers nor their squares are in memory."""
    made, _ = apply_rewrites(spread(), MACHINE, {})
    regions = [[symbol.op for symbol in region.symbols] for region in find_regions(made.graph)]
    assert ["broadcast_mul", "broadcast_sub", "right_shift", "square", "sum", "right_shift"] in regions
    assert ["broadcast_mul", "broadcast_sub", "right_shift"] in regions


def test_sums_over_positions_are_vectors_of_channels() -> None:
    (text,) = (text for text in kernel_texts(spread(convolved=True)) if "held" in text and "reduced_update" in text)
    (sums,) = re.findall(r"for \w+ in (.*):\n.*reduced_update", text)
    assert sums == "T.vectorized(16)"


def test_what_others_read_is_made_once() -> None:
    """The squares are stored anyway."""
    made = Squares()(spread(reads=2))
    assert [symbol.op for symbol in made.operators].count("square") == 1
    assert MadeAgain()(made).operators == made.operators


def test_what_memory_holds_in_as_many_bytes_is_not_made_again() -> None:
    graph = spread("int32")
    assert [symbol.name for symbol in MadeAgain()(graph).operators] == [symbol.name for symbol in graph.operators]


def test_a_product_of_two_tensors_is_no_square() -> None:
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((4,), "int8")) for name in "xy")
    graph = builder.graph([builder.apply(op("elemwise_mul"), [x, y], "p")])
    assert Squares()(graph).operators == graph.operators


def test_the_ends_of_the_range() -> None:
    graph = spread()
    for value in (-128, 127):
        given = {"x": np.where(np.arange(np.prod(SHAPE)) % 2, value, -value - 1).reshape(SHAPE).astype(np.int8)}
        assert_same_values(graph, TvmRunner().prepare(graph)(given), graph.evaluate(given))
