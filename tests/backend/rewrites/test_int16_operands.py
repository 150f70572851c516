"""What int32 holds though 16 bits would do is multiplied as int16, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values
from layers import Layers

from mrt.backend.machine import Machine
from mrt.backend.rewrites.int16_operands import Int16Operands
from mrt.backend.rewrites.rewrite import Facts
from mrt.symbol import Graph, Runner, Symbol

MACHINE = Machine.of({"kind": "llvm", "mcpu": "x86-64-v3"})


def held(layers: Layers, shape: tuple[int, ...], lo: int = 0, hi: int = 2**16 - 1) -> Symbol:
    """Data at the ends of a range, which a clip says."""
    ends = layers.random.choice([lo, lo + 1, hi], shape).astype("int32")
    return layers.hidden("clip", layers.input(ends), a_min=float(lo), a_max=float(hi))


def network(lo: int, hi: int) -> Layers:
    """Layers of every kind on such data: padded, with a bias, strided, one channel each, flattened."""
    layers = Layers()
    data = held(layers, (1, 20, 6, 6), lo, hi)
    padded = layers.padded(data, 1, 1, 1, 1)
    layers.finish(layers.convolution(padded, 18, (3, 3), stride=(2, 1)))
    layers.finish(layers.convolution(padded, 20, (3, 3), num_group=20))
    weight, bias = (
        layers.parameter_of((7, 20, 1, 1), "int8", -128, 127),
        layers.parameter_of((7,), "int32", -9999, 9999),
    )
    biased = layers.hidden("Convolution", data, weight, bias, kernel=(1, 1), num_filter=7)
    layers.finish(biased)
    rows = layers.hidden("Flatten", held(layers, (1, 5, 3, 3), lo, hi))
    weight = layers.parameter_of((9, 45), "int8", -128, 127)
    layers.finish(layers.hidden("FullyConnected", rows, weight, num_hidden=9, no_bias=True))
    return layers


def multiplied(graph: Graph) -> list[str]:
    """The dtypes of what layers read, and of the first matrices of products."""
    products = ("Convolution", "FullyConnected", "batch_dot")
    return [symbol.inputs[0].dtype for symbol in graph.operators if symbol.op in products]


@pytest.mark.parametrize(("lo", "hi"), [(0, 2**16 - 1), (-7, 2**15), (0, 2**15), (-(2**15), 2**15 - 1)])
def test_layers_read_int16(lo: int, hi: int) -> None:
    layers = network(lo, hi)
    graph = layers.graph()
    found = Int16Operands(Facts(MACHINE)).run(graph).graph
    assert multiplied(found) == ["int16"] * 4
    assert_same_values(found, found.evaluate(layers.feeds), graph.evaluate(layers.feeds))


def attention(layers: Layers) -> Symbol:
    """The product of two affine matrices: of bytes less their zero points, one of them transposed."""
    matrices = []
    for zero_point in (-144, 114):
        held = layers.input(layers.random.choice([0, 1, 255], (2, 9, 20)).astype("uint8"))
        whole = layers.hidden("clip", held, a_min=0.0, a_max=255.0)
        offset = layers.parameter(np.full((1, 1, 1), zero_point, np.int16))
        matrices.append(layers.hidden("broadcast_add", whole, offset))
    turned = layers.hidden("transpose", matrices[1], axes=(0, 2, 1))
    return layers.hidden("batch_dot", matrices[0], turned)


def test_products_of_affine_matrices() -> None:
    layers = Layers()
    layers.finish(attention(layers))
    found = Int16Operands(Facts(MACHINE)).run(layers.graph()).graph
    assert [each.dtype for s in found.operators if s.op == "batch_dot" for each in s.inputs] == ["int16"] * 2
    assert_same_values(found, found.evaluate(layers.feeds), layers.graph().evaluate(layers.feeds))


@pytest.mark.sampled(4)
def test_compiled_integers_are_the_same(runner: Runner) -> None:
    layers = network(-7, 2**16 - 8)
    layers.finish(attention(layers))
    layers.check(runner=runner)


def test_one_other_reader_gets_the_whole_integers() -> None:
    layers = Layers()
    data = held(layers, (1, 16, 4, 4))
    layers.finish(layers.convolution(data, 16, (1, 1)))
    layers.add("broadcast_add", data, layers.parameter_of((1, 16, 1, 1), "int8", -9, 9))
    graph = layers.graph()
    found = Int16Operands(Facts(MACHINE)).run(graph).graph
    assert multiplied(found) == ["int16"]
    assert_same_values(found, found.evaluate(layers.feeds), graph.evaluate(layers.feeds))
    layers.check()


def refused(layers: Layers, machine: Machine = MACHINE) -> str:
    (refusal,) = Int16Operands(Facts(machine)).run(layers.graph()).refusals
    return refusal.reason


def test_what_is_left_alone() -> None:
    wide, several, other = Layers(), Layers(), Layers()
    wide.finish(wide.convolution(held(wide, (1, 16, 4, 4), 0, 2**16), 16, (1, 1)))
    assert refused(wide) == "it is in [0, 65536], which exceeds 16 bits"
    data = held(several, (1, 16, 4, 4))
    several.finish(several.convolution(data, 16, (1, 1)))
    for _ in range(2):
        several.add("broadcast_add", data, several.parameter_of((1, 16, 1, 1), "int8", -9, 9))
    assert refused(several) == "several read it in 32 bits"
    other.finish(other.convolution(held(other, (1, 16, 4, 4)), 16, (1, 1)))
    assert refused(other, Machine.generic()).endswith("no instruction adds up products of int16")


def test_an_offset_that_takes_sums_out_of_32_bits_is_left_alone() -> None:
    """Channels that are 0 or 1 have large weights: the offset times these is more than 32 bits hold."""
    layers = Layers()
    data = layers.hidden("Concat", held(layers, (1, 1, 3, 3)), held(layers, (1, 5, 3, 3), 0, 1), dim=1)
    weight = layers.parameter(np.array([1, *[30000] * 5], np.int16).reshape(1, 6, 1, 1))
    layers.finish(layers.hidden("Convolution", data, weight, kernel=(1, 1), num_filter=1, no_bias=True))
    assert refused(layers).endswith("its sums might exceed 32 bits")
