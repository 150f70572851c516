"""Products of bytes whose pairs are added up in int16, where what is known of the data says that none saturates."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import TypeVar

import pytest
from compiled import assert_same_at_the_ends
from layers import TARGETS, Layers, assembly, runnable

from mrt.backend import TvmRunner
from mrt.symbol import Symbol

pytestmark = pytest.mark.usefixtures("direct_sums")

T = TypeVar("T")
RANGES = {"relu": (0, 127), "uint8": (0, 129), "gelu": (-16, 110), "hard swish": (-2, 127)}
"""What data may be, of which each makes one more offset or dtype in memory."""
USERS = "x86-64-v3", "x86-64-v4"
"""CPUs that add up such pairs; others, which do not, take what these are given in turn."""


def clipped(layers: Layers, data: Symbol, ends: tuple[int, int]) -> Symbol:
    """Data that a layer makes, as all that it may be, and stored as bytes."""
    held = layers.hidden("clip", layers.requantized(data, "int16"), a_min=float(ends[0]), a_max=float(ends[1]))
    return layers.hidden("Cast", held, dtype="int8" if ends[1] < 128 else "uint8")


def network(ends: tuple[int, int]) -> Layers:
    """Convolutions of 1 × 1 and more, with borders, groups, strides and channels that fill no dots, and rows."""
    layers = Layers()
    data = layers.input(layers.integers((2, 5, 9, 9), "int8"))
    x = clipped(layers, layers.convolution(data, 48, (1, 1)), ends)
    layers.add("relu", layers.convolution(x, 40, (1, 1)))
    x = clipped(layers, layers.convolution(x, 36, (3, 3), pad=(1, 1)), ends)
    x = clipped(layers, layers.convolution(x, 30, (3, 3), stride=(2, 2)), ends)
    layers.add("relu", layers.convolution(x, 32, (1, 1), num_group=2))
    x = clipped(layers, layers.convolution(x, 64, (1, 1)), ends)
    other = clipped(layers, layers.convolution(x, 64, (1, 1)), ends)
    joined = layers.hidden("Concat", x, other, dim=1)
    layers.add("relu", layers.convolution(joined, 24, (1, 1)))
    rows = layers.parameter_of((20, 64 * 16), "int8", -127, 127)
    layers.add("FullyConnected", x, rows, num_hidden=20, no_bias=True)
    return layers


def for_cpus(cases: Iterable[T]) -> list[tuple[str, T]]:
    """Each case for each of the CPUs that add up pairs, and one for each other one."""
    held = list(cases)
    others = zip([cpu for cpu in runnable() if cpu not in USERS], cycle(held), strict=False)
    return [*((cpu, case) for cpu in runnable() if cpu in USERS for case in held), *others]


@pytest.mark.parametrize(("cpu", "ends"), for_cpus(RANGES.values()))
def test_their_sums_are_exact_at_the_ends(cpu: str, ends: tuple[int, int]) -> None:
    assert_same_at_the_ends(network(ends).graph(), -128, 127, TvmRunner(TARGETS[cpu]))


@pytest.mark.parametrize("cpu", runnable())
def test_tensors_in_one_memory_may_ask_for_offsets_of_their_own(cpu: str) -> None:
    """Of parts of a Concat that others read, too, one is a little below 0, one further and one is never."""
    layers = Layers()
    data = layers.input(layers.integers((1, 5, 9, 9), "int8"))
    parts = [clipped(layers, layers.convolution(data, 32, (1, 1)), ends) for ends in ((-2, 120), (-16, 100), (0, 127))]
    for part in parts:
        layers.add("relu", layers.convolution(part, 16, (1, 1)))
    joined = layers.hidden("Concat", *parts, dim=1)
    layers.add("relu", layers.convolution(joined, 24, (3, 3), pad=(1, 1)))
    few = layers.parameter_of((24, 96, 1, 1), "int8", -100, 100)
    layers.add("Convolution", joined, few, kernel=(1, 1), num_filter=24, no_bias=True)
    assert_same_at_the_ends(layers.graph(), -128, 127, TvmRunner(TARGETS[cpu]))


@pytest.mark.parametrize("cpu", runnable())
def test_others_read_what_is_stored_with_an_offset(cpu: str) -> None:
    """Data of int8, which a table gives, and of int16."""
    layers = Layers()
    data = layers.input(layers.integers((1, 5, 9, 9), "int8"))
    made = layers.requantized(layers.convolution(data, 32, (1, 1)), "int8")
    table = layers.parameter(layers.integers((256,), "int8", -9, 113))
    for x in (layers.hidden("table_lookup", made, table, offset=128), clipped(layers, made, (-16, 113))):
        layers.add("relu", layers.convolution(x, 16, (1, 1)))
        layers.add("relu", layers.hidden("broadcast_add", x, layers.parameter_of((1, 32, 1, 1), "int8", 50, 90)))
    assert_same_at_the_ends(layers.graph(), -128, 127, TvmRunner(TARGETS[cpu]))


@pytest.mark.parametrize(("cpu", "ends"), for_cpus([(-2000, 2000), (-200, 100), (0, 300)]))
def test_memory_that_tensors_share_holds_them_all(cpu: str, ends: tuple[int, int]) -> None:
    """Of one tensor a reader asks for bytes, which do not hold its neighbours: parts of a Concat, other channels."""
    layers = Layers()
    data = layers.input(layers.integers((1, 5, 9, 9), "int8"))
    few, many = (layers.requantized(layers.convolution(data, 32, (1, 1)), "int16") for _ in range(2))
    few = layers.hidden("clip", few, a_min=0.0, a_max=127.0)
    many = layers.hidden("clip", many, a_min=float(ends[0]), a_max=float(ends[1]))
    layers.add("relu", layers.convolution(few, 16, (1, 1)))
    joined = layers.hidden("Concat", few, many, dim=1)
    layers.add("relu", layers.hidden("broadcast_add", joined, layers.parameter_of((1, 64, 1, 1), "int8", 1, 9)))
    part = layers.hidden("slice_axis", joined, axis=1, begin=0, end=32)
    layers.add("relu", layers.convolution(part, 24, (1, 1)))
    assert_same_at_the_ends(layers.graph(), -128, 127, TvmRunner(TARGETS[cpu]))


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_bytes_are_multiplied_where_data_is_never_below_zero(cpu: str) -> None:
    """And words where it may be anything, in one network."""
    layers = Layers()
    data = layers.input(layers.integers((1, 32, 8, 8), "int8"))
    x = clipped(layers, layers.convolution(data, 32, (1, 1)), RANGES["relu"])
    layers.finish(layers.convolution(x, 32, (1, 1)))
    found = assembly(layers.graph(), TARGETS[cpu])
    assert "vpmaddubsw" in found
