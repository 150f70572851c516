"""Softmax and normalization, row by row."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from compiled import assert_same_at_the_ends
from layers import Layers, kernel_texts, normalized, softmax_of

from mrt.backend import TvmRunner, build_module
from mrt.backend.explain import explain
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, Operator, Runner
from mrt.symbol.operators.activation import Tanh
from mrt.symbol.operators.instance_normalization import InstanceNorm
from tests.quantization.networks import chain, quantize_and_run, random_samples

SHAPES = [(3, 33, 19), (1, 5, 16), (2, 2, 7, 40), (4, 3), (37, 20), (2, 3, 49, 33)]


def test_rows(runner: Runner, turn: int) -> None:
    """Softmax and normalization of rows that fill vectors or do not, written padded or in the graph's order.

    Every other shape on each CPU. Where softmax reads padded rows, normalization reads those in the graph's order; two
    CPUs further the other way round.
    """
    layers = Layers()
    for shape in SHAPES[turn % 2 :: 2]:
        plain = layers.input(layers.integers(shape, "int8", -100, 100))
        weight = layers.parameter_of((shape[-1], shape[-1]), "int8", -3, 3)
        product = layers.hidden("FullyConnected", plain, weight, num_hidden=shape[-1], no_bias=True, flatten=False)
        padded = layers.hidden("Cast", layers.hidden("clip", product, a_min=-127.0, a_max=127.0), dtype="int8")
        first, second = (plain, padded) if turn // 2 % 2 else (padded, plain)
        for result in (softmax_of(layers, first), *normalized(layers, second)):
            layers.add("clip", result, a_min=-20000.0, a_max=20000.0)
    layers.check(runner=runner)


def test_rows_are_computed_by_one_function() -> None:
    layers = Layers()
    weight = layers.parameter_of((24, 24), "int8", -3, 3)
    given = layers.input(layers.integers((2, 9, 24), "int8", -100, 100))
    product = layers.hidden("FullyConnected", given, weight, num_hidden=24, no_bias=True, flatten=False)
    data = layers.hidden("Cast", layers.hidden("clip", product, a_min=-127.0, a_max=127.0), dtype="int8")
    layers.add("Cast", softmax_of(layers, data), dtype="uint8")
    calls = explain(layers.graph(), []).calls
    assert [call.operators[0] for call in calls if call.operators != ("copy",)] == ["FullyConnected", "max"]


@pytest.mark.parametrize(
    ("rows", "tiles", "threads"),
    [(37, [16, 5], 1), (37, [16, 5], 2), (48, [24], 1), (2, [2], 2), (34, [17], 1), (197, [16, 5], 2)],
)
def test_the_last_tile_has_fewer_rows(rows: int, tiles: list[int], threads: int) -> None:
    """Of a number of rows that tiles do not divide; none of them asks for each row whether it is there."""
    layers = Layers()
    data = layers.input(layers.integers((2, 3, rows, 48), "int8", -100, 100))
    layers.add("Cast", softmax_of(layers, data), dtype="uint8")
    target = {"threads": threads}
    text = str(build_module(layers.graph(), target=target))
    reciprocals = re.findall(
        r"for \w+ in T.vectorized\((\d+)\):(?:\n +for .*)*\n +with T.sblock\(\"reciprocal\"\)", text
    )
    assert [int(each) for each in reciprocals] == tiles
    assert "T.where(" not in text
    layers.check(runner=TvmRunner(target))


def instances(shape: tuple[int, ...], *before: tuple[Operator, list[np.ndarray]]) -> Graph:
    """Integers of an instance normalization, whose rows are maps."""
    rng = np.random.default_rng(sum(shape))
    normalization = InstanceNorm(), [rng.uniform(0.5, 2.0, shape[1]), rng.standard_normal(shape[1])]
    graph = chain(shape, *before, normalization)
    return quantize_and_run(graph, random_samples(graph, 1), QuantizationConfig()).integer.graph


@cache
def instances_of_bytes(shape: tuple[int, ...]) -> Graph:
    """Of bytes that a table gives."""
    return instances(shape, (Tanh(), []))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(1, 1, 16320), (1, 2, 12319), (2, 5, 4096), (1, 40, 1056)])
def test_rows_of_maps(runner: Runner, shape: tuple[int, ...]) -> None:
    """Long rows, summed up in pieces or not, that fill vectors or do not, in tiles of one, two, five and many."""
    assert_same_at_the_ends(instances_of_bytes(shape), -127, 127, runner)


@pytest.mark.parametrize("shape", [(1, 1, 102400), (1, 2, 51183)])
def test_threads_share_pieces_of_few_rows(shape: tuple[int, ...]) -> None:
    graph, loops = instances_of_bytes(shape), []
    for threads in (1, 2):
        target = {"threads": threads}
        assert_same_at_the_ends(graph, -127, 127, TvmRunner(target))
        loops.append(str(build_module(graph, target=target)).count("T.parallel"))
    # The sum, that of the squares, and what is made of both.
    assert loops[0] == 0 and loops[1] >= 3


def test_rows_are_not_kept_for_one_reader_nor_where_bytes_make_them_again() -> None:
    (text,) = (text for text in kernel_texts(instances((1, 4, 2048))) if "roots" in text)
    before_sum = text[: text.rindex('T.sblock("partial')]
    assert 'T.sblock("stored' in before_sum[before_sum.rindex(" in range(128):") :]
    assert "input0[" in text[text.rindex("T.reads(") :]
