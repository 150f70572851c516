"""Data of 16 bits as bytes: the same integers, at the ends of the ranges, and tiles multiply them where there are some.

Code for tiles is looked at here, whatever this machine is; its arithmetic is that of bytes, which vectors form here.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import assert_same_values
from layers import Layers

from mrt.backend import TvmRunner
from mrt.backend.build import compile_executable
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.operators.data_bytes import HighByte, JoinBytes, LowByte
from mrt.backend.rewrites.data_in_bytes import DataInBytes
from mrt.backend.rewrites.rewrite import Facts
from mrt.symbol import Interval, Symbol

TILES = Machine.of({"kind": "llvm", "mcpu": "sapphirerapids", "threads": 1})


def held(layers: Layers, shape: tuple[int, ...], lo: int, hi: int) -> Symbol:
    """Data of 16 bits at the ends of a range and beside the ends of its bytes."""
    ends = [value for value in (lo, hi, -257, -256, -255, -129, -128, -1, 0, 127, 128, 255, 256) if lo <= value <= hi]
    whole = layers.hidden("clip", layers.input(layers.random.choice(ends, shape)), a_min=float(lo), a_max=float(hi))
    return layers.hidden("Cast", whole, dtype="int16")


def network(lo: int, hi: int, value: int) -> Layers:
    """Layers that tiles serve: padded, strided, with a bias, rows of a matrix; a relu reads one, too."""
    layers = Layers()
    data = held(layers, (1, 40, 6, 8), lo, hi)
    layers.finish(layers.convolution(layers.padded(data, 1, 1, 1, 1, value=value), 20, (3, 3), stride=(2, 1)))
    layers.add("relu", data)
    weight, bias = (
        layers.parameter_of((7, 40, 3, 3), "int8", -128, 127),
        layers.parameter_of((7,), "int32", -9999, 9999),
    )
    layers.finish(layers.hidden("Convolution", data, weight, bias, kernel=(3, 3), num_filter=7, pad=(1, 1)))
    rows = held(layers, (6, 260), lo, hi)
    weight = layers.parameter_of((9, 260), "int8", -128, 127)
    layers.finish(layers.hidden("FullyConnected", rows, weight, num_hidden=9, no_bias=True))
    return layers


@pytest.mark.parametrize(("lo", "hi", "value"), [(-(2**15), 2**15 - 1, -129), (0, 2**12 - 1, 4095)])
def test_sums_are_the_same(lo: int, hi: int, value: int) -> None:
    layers = network(lo, hi, value)
    graph = layers.graph()
    result = DataInBytes(Facts(TILES)).run(graph)
    read = [each.inputs[0].dtype for each in result.graph.operators if each.op in ("Convolution", "FullyConnected")]
    assert sorted(read) == ["int8"] * 3 + ["uint8"] * 3
    expected = graph.evaluate(layers.feeds)
    assert_same_values(result.graph, result.graph.evaluate(layers.feeds), expected)
    if lo < 0:
        assert_same_values(result.graph, TvmRunner().prepare(result.graph)(layers.feeds), expected)


def test_tiles_multiply_both_bytes() -> None:
    layers = network(-(2**15), 2**15 - 1, 0)
    module_builder = ModuleBuilder(TILES)
    module_builder.add(layers.graph(), "main")
    kernels = compile_executable(module_builder.module(), TILES).kernels
    code = "".join(module.inspect_source("asm") for module in kernels)
    assert len(re.findall(r"^\s+tdpbusd\s", code, re.MULTILINE)) >= 6
    assert not re.search(r"^\s+vpdp", code, re.MULTILINE)


def test_what_is_left_to_vectors() -> None:
    layers = Layers()
    layers.finish(layers.convolution(held(layers, (1, 64, 6, 6), -9, 999), 16, (1, 1)))
    layers.finish(layers.convolution(held(layers, (1, 64, 6, 6), -9, 999), 64, (3, 3), num_group=64))
    layers.finish(layers.convolution(held(layers, (1, 64, 9, 3), -9, 999), 64, (3, 3), pad=(1, 1)))
    result = DataInBytes(Facts(TILES)).run(layers.graph())
    assert not any(isinstance(each.operator, JoinBytes) for each in result.graph.operators)
    reasons = " ".join(refusal.reason for refusal in result.refusals)
    assert all(said in reasons for said in ("fewer than 256 products", "groups of channels", "fewer than 4 positions"))
    assert DataInBytes(Facts(TILES.without("amx-int8"))).run(layers.graph()).refusals == ()


def test_high_sums_that_leave_32_bits_are_left_alone() -> None:
    """Of 512 products of -128 and the least byte 256 times the sum is 2^31; the sum of words is held by a low byte."""
    layers = Layers()
    data = held(layers, (4, 512), -(2**15), -(2**15) + 255)
    weight = layers.parameter(np.full((16, 512), -128, np.int8))
    layers.finish(layers.hidden("FullyConnected", data, weight, num_hidden=16, no_bias=True))
    assert "exceed 32 bits" in DataInBytes(Facts(TILES)).run(layers.graph()).refusals[0].reason


def test_bytes_of_every_word_join_to_it_and_are_bounded() -> None:
    words = np.arange(-(2**15), 2**15).astype(np.int16)
    low, high = LowByte().evaluate(words), HighByte().evaluate(words)
    assert [list(divmod(word, 256)) for word in range(-(2**15), 2**15, 251)] == [
        [int(high[i]), int(low[i])] for i in range(0, 2**16, 251)
    ]
    np.testing.assert_array_equal(JoinBytes().evaluate(low, high), words)
    for lo, hi in ((-300, 300), (0, 255), (7, 9), (256, 600)):
        held = np.arange(lo, hi + 1).astype(np.int16)
        for record in (LowByte(), HighByte()):
            bounds, found = record.bounds(Interval.of(lo, hi, (1,))), record.evaluate(held)
            assert bounds.min <= found.min()
            assert found.max() <= bounds.max
