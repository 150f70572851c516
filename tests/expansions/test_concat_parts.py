"""Concatenations of a wide and a narrow part: each keeps a scale of its own where its readers take channel groups."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import mrt
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType, run_passes
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.arrangement import UpSampling
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.functions import Negative
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Concat, Transpose
from tests.matrix import NORMAL_FORM, QUANTIZERS
from tests.quantization.networks import observe, quantize_and_run, random_samples

NARROW, WIDE = 16, 24
"""The channels of the parts; the values of the narrow one have a thirtieth of the range."""
Network = Callable[[GraphBuilder, Symbol, Symbol], Symbol]


def convolved(builder: GraphBuilder, data: Symbol, filters: int, kernel: int, scale: float = 1.0) -> Symbol:
    shape = (filters, data.shape[1], kernel, kernel)
    weight = scale * np.random.default_rng(filters).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    operator = Convolution((kernel, kernel), filters, pad=(kernel // 2,) * 2, no_bias=True)
    product = builder.apply(operator, [data, builder.parameter("w", weight.astype(np.float32))], "conv")
    return builder.apply(Relu(), [product])


def read(make: Network, whole: bool = False) -> Graph:
    """A layer that reads the narrow part's channels of what `make` joins, or all of them."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8, 8, 8)))
    narrow, wide = convolved(builder, x, NARROW, 1, 1 / 30), convolved(builder, x, WIDE, 3)
    joined = make(builder, narrow, wide)
    weight = np.random.default_rng(3).standard_normal((8, joined.shape[1], 3, 3)).astype(np.float32)
    if not whole:
        weight[:, NARROW:] = 0
    operator = Convolution((3, 3), 8, no_bias=True)
    return run_passes(
        builder.graph([builder.apply(operator, [joined, builder.parameter("r", weight)], "y")]), NORMAL_FORM
    ).graph


def joined(*then: Operator) -> Network:
    def make(builder: GraphBuilder, narrow: Symbol, wide: Symbol) -> Symbol:
        symbol = builder.apply(Concat(), [narrow, wide], "joined")
        for operator in then:
            symbol = builder.apply(operator, [symbol])
        return symbol

    return make


def nested(builder: GraphBuilder, narrow: Symbol, wide: Symbol) -> Symbol:
    """Joined to what a layer makes of them, as in a dense block."""
    first = builder.apply(Concat(), [narrow, wide], "first")
    return builder.apply(Concat(), [first, convolved(builder, first, 8, 3)], "second")


def uneven(builder: GraphBuilder, narrow: Symbol, wide: Symbol) -> Symbol:
    """With parts of 3 and 5 channels behind, and a constant."""
    constant = builder.parameter("c", np.full((1, 2, 8, 8), 0.01, np.float32))
    return builder.apply(Concat(), [narrow, wide, convolved(builder, wide, 3, 1), constant], "joined")


def also_added(builder: GraphBuilder, narrow: Symbol, wide: Symbol) -> Symbol:
    """Another reader brings it to the scale of a sum."""
    symbol = builder.apply(Concat(), [narrow, wide], "joined")
    other = convolved(builder, symbol, NARROW + WIDE, 1)
    return builder.apply(Concat(), [symbol, builder.apply(ElemwiseAdd(), [symbol, other], "total")], "both")


NETWORKS: dict[str, Network] = {
    "fire": joined(),
    "pooled": joined(Pooling((3, 3), stride=(1, 1)), Pooling((2, 2), pool_type="avg")),
    "enlarged": joined(UpSampling(2)),
    "rectified": joined(Relu()),
    "turned twice": joined(Transpose((0, 2, 3, 1)), Transpose((0, 3, 1, 2))),
    "nested": nested,
    "uneven": uneven,
    "added": also_added,
}


def contribution(graph: Graph, config: QuantizationConfig) -> float:
    """The SQNR, in dB, of the sum over the narrow part."""
    outcome = quantize_and_run(graph, random_samples(graph), config)
    real, found = np.stack(outcome.real), np.stack(outcome.approximate)
    return float(10 * np.log10(np.square(real).sum() / np.square(real - found).sum()))


def config(quantizer: str = "symmetric", **options: object) -> QuantizationConfig:
    return QuantizationConfig.model_validate({"activation": {"quantizer": quantizer}, **options})


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_the_narrow_part_keeps_its_bits(name: str, quantizer: str) -> None:
    """At one scale it has 3 of 8 bits, and less than 20 dB."""
    graph = read(NETWORKS[name])
    assert contribution(graph, config(quantizer)) >= 31
    assert contribution(graph, config(quantizer, max_extra_operations=0)) < 22


def test_a_flattened_part_keeps_its_columns() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8, 4, 4)))
    symbol = builder.apply(Concat(), [convolved(builder, x, 3, 1, 1 / 30), convolved(builder, x, 5, 3)], "joined")
    weight = np.random.default_rng(0).standard_normal((6, 128)).astype(np.float32)
    weight[:, 48:] = 0
    product = builder.apply(FullyConnected(6, no_bias=True), [symbol, builder.parameter("r", weight)])
    assert contribution(run_passes(builder.graph([product]), NORMAL_FORM).graph, config()) >= 33


def observed(graph: Graph) -> dict[str, mrt.Range]:
    return observe(graph, random_samples(graph))


def test_a_note_says_what_it_gains_or_why_not() -> None:
    graph = read(joined(), whole=True)
    ranges = observed(graph)
    (taken,) = (note for note in expand_graph(graph, ranges, config()).notes if note.startswith("joined"))
    gain = re.fullmatch(r"joined \(Concat\): its parts keep their own scales, up to (.*) dB less noise in one", taken)
    own, whole = (ranges[name].magnitude for name in ("relu", "joined"))
    # Scales are integer multiples of a common one, which is at most a quarter of the finest.
    ideal = 20 * np.log10(whole / own)
    assert gain is not None and ideal - 20 * np.log10(1.25) <= float(gain.group(1)) <= ideal + 0.05
    (left,) = expand_graph(graph, ranges, config(max_extra_operations=0)).notes
    assert left.startswith("joined (Concat): one scale for all its parts") and "max_extra_operations" in left


@pytest.mark.parametrize("ratio, is_split", [(1.0, False), (0.75, False), (0.5, True)])
def test_parts_of_like_ranges_have_one_scale(ratio: float, is_split: bool) -> None:
    """Below half a bit of gain nothing changes."""
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((1, 4, 4, 4))) for name in "xy")
    symbol = builder.apply(Concat(), [builder.apply(Negative(), [each]) for each in (x, y)], "joined")
    weight = builder.parameter("r", np.ones((2, 8, 3, 3), np.float32))
    graph = builder.graph([builder.apply(Convolution((3, 3), 2, no_bias=True), [symbol, weight])])
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 4, 4, 4)
    ranges = observe(graph, [{"x": image, "y": np.float32(ratio) * image}])
    assert any("own scales" in note for note in expand_graph(graph, ranges, config()).notes) == is_split


@pytest.mark.parametrize("last", [Clip(-1.0, 1.0), Negative()])
def test_readers_that_take_one_scale_get_it(last: Operator) -> None:
    """The parts stay as they were where no reader takes channel groups."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8, 8, 8)))
    parts = [convolved(builder, x, NARROW, 1, 1 / 30), convolved(builder, x, WIDE, 3)]
    graph = builder.graph([builder.apply(last, [builder.apply(Concat(), parts, "joined")])])
    integer = expand_graph(
        run_passes(graph, NORMAL_FORM).graph, observed(run_passes(graph, NORMAL_FORM).graph), config()
    )
    assert not any("own scales" in note for note in integer.notes)


def test_compiled_integers_are_those_of_numpy() -> None:
    graph = read(nested, whole=True)
    samples = np.random.default_rng(0).standard_normal((4, 8, 8, 8)).astype(np.float32)
    model = mrt.quantize(graph, samples)
    feeds: dict[str, Array] = model.quantize_inputs({"x": samples[:1]})
    (expected,) = model.graph.evaluate(feeds)
    found = model.compile({"mcpu": "native", "threads": 1}).run_integer(feeds)
    np.testing.assert_array_equal(np.asarray(found).reshape(expected.shape), expected)
