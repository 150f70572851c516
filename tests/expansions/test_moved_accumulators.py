"""What moves or selects elements between a layer and a sum passes the accumulator on, which is rounded there."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.quantization.expand import expand_graph
from mrt.quantization.expansion import deferring
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, Interval, Operator, TensorType
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.functions import Negative
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import ExpandDims, Reshape, Slice, SliceAxis, Squeeze, Transpose
from tests.matrix import QUANTIZERS, extreme_feeds
from tests.quantization.networks import observe, quantize_and_run, random_samples

MOVES: dict[str, tuple[Operator, ...]] = {
    "reshape": (Reshape((2, 4, 6)),),
    "turned": (Reshape((2, 4, 6)), Transpose((0, 2, 1))),
    "sliced": (Reshape((2, 4, 6)), Slice((0, 0, 1), (2, 4, 5))),
    "there and back": (ExpandDims(1), Squeeze((1,))),
    "channels cut up": (Reshape((8, 2, 3)),),
    "heads": (Reshape((2, 4, 2, 3)), Transpose((0, 2, 1, 3))),
    "channels shuffled": (Reshape((8, 2, 3)), Transpose((0, 2, 1)), Reshape((8, 6))),
    "channels left out": (SliceAxis(1, 1, 4),),
    "every other channel": (Slice((None, 1), (None, None), (1, 2)),),
    "channels there and back": (Reshape((48,)), Reshape((8, 6)), SliceAxis(1, 0, 5)),
}
NOT_APART = {"channels there and back"}
"""Those behind which an axis would have a scale for every element."""


def network(moves: tuple[Operator, ...], is_last: bool = False, reader: Operator | None = None) -> Graph:
    """A layer with its bias, what moves its output, and the residual that is added: ten times as wide."""
    builder, rng = GraphBuilder(), np.random.default_rng(0)
    x = builder.input("x", TensorType((8, 16)))
    symbol = builder.apply(FullyConnected(6, no_bias=True), [x, builder.parameter("w", normal(rng, 6, 16))], "layer")
    symbol = builder.apply(BroadcastAdd(), [symbol, builder.parameter("b", normal(rng, 6))], "biased")
    for index, operator in enumerate(moves):
        symbol = builder.apply(operator, [symbol], f"moved{index}")
    outputs = [] if not is_last else [symbol]
    if reader is not None:
        outputs.append(builder.apply(reader, [symbol], "read"))
    residual = builder.input("r", symbol.type)
    return builder.graph([*outputs, builder.apply(ElemwiseAdd(), [symbol, residual], "total")])


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_the_sum_is_as_exact_as_without_moves(name: str, quantizer: str) -> None:
    """Beside inputs, weights and a residual of 16 bits, rounding to 8 bits on the way would leave 42 dB."""
    graph = network(MOVES[name])
    fine = {"activation": {"bits": 16}}
    config = QuantizationConfig.model_validate(
        {"activation": {"quantizer": quantizer}, "weight": {"bits": 16}, "overrides": {"x": fine, "r": fine}}
    )
    samples = random_samples(graph)
    outcome = quantize_and_run(graph, samples, config, observe(graph, samples))
    # Before the output, of 16 bits, the accumulator is all that there is.
    assert outcome.relative_error < 2.0**-11
    assert {symbol.name for symbol in deferring(graph)} == {f"moved{index}" for index in range(len(MOVES[name]))}


@pytest.mark.parametrize("name", MOVES)
def test_the_scales_of_the_channels_are_moved_with_them(name: str) -> None:
    """So that nothing rescales them to a common scale before; where they cannot be, that is done, by 31 bits."""
    graph = network(MOVES[name])
    integer = expand_graph(graph, observe(graph, random_samples(graph)), QuantizationConfig())
    accumulator = integer.graph.by_name["biased"]
    readers = {type(each.operator) for each in integer.graph.operators if accumulator in each.inputs}
    assert (readers == {type(MOVES[name][0])}) == (name not in NOT_APART)


@pytest.mark.parametrize("reader", [Sigmoid(), Reshape((-1,))])
def test_a_reader_of_narrow_integers_has_them_moved(reader: Operator) -> None:
    """As before: a table, and an output of the network."""
    assert not deferring(network(MOVES["reshape"], reader=reader))
    assert not deferring(network(MOVES["reshape"], is_last=True))


def test_a_chain_defers_as_a_whole_or_not_at_all() -> None:
    assert not deferring(network((Reshape((2, 4, 6)), Transpose((0, 2, 1))), reader=Sigmoid()))
    assert len(deferring(network((Reshape((2, 4, 6)), Transpose((0, 2, 1))), reader=Negative()))) == 2


def test_what_is_moved_is_narrow_where_the_next_quantizer_is() -> None:
    """A table's entries, an input: what has 8 bits keeps them."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 6)))
    table = builder.apply(Reshape((3, 4)), [builder.apply(Sigmoid(), [x])], "moved")
    graph = builder.graph([builder.apply(ElemwiseAdd(), [table, builder.input("r", table.type)])])
    integer = expand_graph(graph, observe(graph, random_samples(graph)), QuantizationConfig())
    assert integer.graph.by_name["moved"].type.dtype in ("int8", "uint8", "int16")


def test_compiled_integers_are_those_of_numpy() -> None:
    graph = network(MOVES["turned"])
    integer = expand_graph(graph, observe(graph, random_samples(graph)), QuantizationConfig())
    known = {symbol.name: Interval.of(target.lo, target.hi, symbol.shape) for symbol, target in integer.inputs}
    run = TvmRunner(ONE_THREAD, known).prepare(integer.graph)
    for feeds in extreme_feeds(integer):
        (expected,), (found,) = integer.graph.evaluate(feeds), run(feeds)
        np.testing.assert_array_equal(found, expected)


def test_a_reader_that_sometimes_defers_is_asked_what_it_takes() -> None:
    """A pooling defers where it takes maxima; one that averages behind a reshape rounds."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8, 4)))
    moved = builder.apply(Reshape((1, 8, 2, 2)), [x], "moved")
    pooled = builder.apply(Pooling(kernel=(1, 1), pool_type="avg", stride=(1, 2)), [moved], "pooled")
    assert not deferring(builder.graph([pooled]))
