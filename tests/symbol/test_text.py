"""The text form of graphs."""

from __future__ import annotations

import numpy as np

from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.operators.pooling import Pooling


def test_float_graph() -> None:
    builder = GraphBuilder()
    data = builder.input("data", TensorType((1, 3, 8, 8)))
    unused = builder.input("unused", TensorType((2,)))
    weight = builder.parameter("conv_weight", np.zeros((4, 3, 3, 3), np.float32))
    factor = builder.parameter("factor", np.array([[0.1], [2.0]], np.float32).reshape(1, 2, 1)[:, :1])
    conv = builder.apply(Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True), [data, weight], "conv")
    scaled = builder.apply(BroadcastMul(), [conv, factor], "scaled", origin="conv")
    pool = builder.apply(Pooling(pool_type="sum", global_pool=True), [scaled], "pool")
    assert unused.name == "unused"
    assert str(builder.graph([pool, factor, data, pool])) == (
        "graph(%data : float32[1, 3, 8, 8], %unused : float32[2]) {\n"
        "  @conv_weight : float32[4, 3, 3, 3]\n"
        "  @factor : float32[1, 1, 1] = [[[0.1]]]\n"
        "  %conv : float32[1, 4, 8, 8] = Convolution(%data, @conv_weight)"
        " {kernel = (3, 3), num_filter = 4, pad = (1, 1), no_bias = True}\n"
        "  %scaled : float32[1, 4, 8, 8] = broadcast_mul(%conv, @factor) from conv\n"
        "  %pool : float32[1, 4, 1, 1] = Pooling(%scaled) {pool_type = 'sum', global_pool = True}\n"
        "  return %pool, @factor, %data, %pool\n"
        "}"
    )


def test_integer_graph() -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 2), "int32"))
    shift = builder.parameter("shift", np.array(3, np.int32), origin="dense")
    empty = builder.parameter("empty", np.zeros((0, 2), np.int8))
    shifted = builder.apply(RightShift(), [data, shift], "dense_shift", origin="dense")
    clipped = builder.apply(Clip(a_min=-127, a_max=127), [shifted], "dense")
    assert str(builder.graph([clipped, empty])) == (
        "graph(%x : int32[1, 2]) {\n"
        "  @shift : int32[] = 3 from dense\n"
        "  @empty : int8[0, 2]\n"
        "  %dense_shift : int32[1, 2] = right_shift(%x, @shift) from dense\n"
        "  %dense : int32[1, 2] = clip(%dense_shift) {a_min = -127.0, a_max = 127.0}\n"
        "  return %dense, @empty\n"
        "}"
    )


def test_names_stay_readable_and_unambiguous() -> None:
    names = [
        "model/conv2d/Conv2D__5:0",
        "a b",
        "a, %b",
        'say "x"',
        "größe",
        "line\nbreak",
        "\u202eright",
        "",
        "%x",
        "[",
    ]
    builder = GraphBuilder()
    symbol = builder.input("in", TensorType((1,)))
    for name in names:
        symbol = builder.apply(Relu(), [symbol], name or "0")
    lines = builder.graph([symbol]).text().splitlines()
    assert [line.split(" : ")[0].strip() for line in lines[1:-2]] == [
        "%model/conv2d/Conv2D__5:0",
        '%"a b"',
        '%"a, %b"',
        '%"say \\"x\\""',
        "%größe",
        '%"line\\nbreak"',
        '%"\\u202eright"',
        "%0",
        '%"%x"',
        '%"["',
    ]


def test_chain_of_ten_thousand_operators() -> None:
    builder = GraphBuilder()
    symbol = data = builder.input("x", TensorType((1,)))
    for _ in range(10_000):
        symbol = builder.apply(ElemwiseAdd(), [symbol, data], "add")
    lines = builder.graph([symbol]).text().splitlines()
    assert len(lines) == 10_003
    assert lines[-3] == "  %add_9999 : float32[1] = elemwise_add(%add_9998, %x)"
