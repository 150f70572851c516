"""Channel groups through chains: tables, products and joins keep the scales of the groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, Interval, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.operators.activation import Sigmoid, Tanh
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import Abs
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Transpose
from tests.expansions.split_layers import IMAGE, SPREAD, config_of, conv, even, normal, of_op, times
from tests.matrix import assert_proven_at_extremes, assert_within_bounds, extreme_feeds
from tests.quantization.networks import chain, random_samples


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_every_channel_has_the_table_of_its_scales(quantizer: str) -> None:
    """In one look-up: entry for entry the function of what the channel's integers stand for, in Python floats."""
    graph = chain(IMAGE, times(*SPREAD), (Sigmoid(), []), conv(4, 6))
    integer = assert_within_bounds(graph, random_samples(graph), config_of(1, pair=(quantizer, "symmetric")))
    (lookup,) = of_op(integer, "table_lookup")
    assert not of_op(integer, "Concat") and not [s for s in of_op(integer, "slice_axis") if s.origin == "s1"]
    index, table = lookup.inputs[0], integer.graph.value(lookup.inputs[1])
    data, starts = index.inputs[0], integer.graph.value(index.inputs[1]).reshape(-1)
    scales, given = (integer.scales[symbol.name].reshape(-1) for symbol in (data, lookup))
    zeros, moved = (
        np.broadcast_to(integer.zero_points.get(s.name, 0), (1, 6, 1, 1)).reshape(-1) for s in (data, lookup)
    )
    assert len(set(scales)) > 3 and len(set(given)) > 1
    inputs = {symbol.name: Interval.of(target.lo, target.hi, symbol.shape) for symbol, target in integer.inputs}
    reached = analyse_bounds(integer.graph, inputs)[data.name].reduced([1])
    lows, highs = (np.broadcast_to(end.reshape(-1), 6).tolist() for end in (reached.lo, reached.hi))
    for channel, (lo, hi) in enumerate(zip(lows, highs, strict=True)):
        assert hi - lo > 100
        for q in range(lo, hi + 1):
            real = 1 / (1 + math.exp(-scales[channel] * (q - zeros[channel])))
            found = int(table[q + starts[channel]])
            assert abs(given[channel] * (found - moved[channel]) - real) <= 0.5001 * given[channel] or found in (0, 255)


def test_tables_of_sixteen_bits_are_cut_into_slices_and_merged() -> None:
    """Two groups of 65,535 entries each are more than one table holds; channels of one range share theirs."""
    graph = chain(IMAGE, times(1, 1, 1, 1, 0.1, 0.1), (Tanh(), []), conv(4, 6))
    integer = assert_within_bounds(graph, random_samples(graph), config_of(2, bits=12))
    assert len(of_op(integer, "table_lookup")) == 1
    overrides = {"s0": {"activation": {"bits": 16}}}
    config = config_of(2).model_copy(update={"overrides": QuantizationConfig(overrides=overrides).overrides})
    integer = assert_within_bounds(graph, random_samples(graph), config)
    assert_proven_at_extremes(integer)
    (joined,) = of_op(integer, "Concat")
    assert [part.op for part in joined.inputs] == ["table_lookup"] * len(joined.inputs) and len(joined.inputs) > 1
    assert {part.inputs[0].op for part in joined.inputs} <= {"slice_axis", "broadcast_add"}


def test_a_split_stays_split_through_a_chain() -> None:
    """Scales travel through tables, products, moves and maxima: nothing is sliced or merged before the sum."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType(IMAGE))
    spread = builder.parameter("spread", np.asarray(SPREAD, np.float32).reshape(1, 6, 1, 1))
    t = builder.apply(BroadcastMul(), [x, spread], "t")
    gate = builder.apply(Sigmoid(), [t], "gate")
    gated = builder.apply(ElemwiseMul(), [gate, t], "gated")
    turned = builder.apply(Transpose((0, 2, 3, 1)), [builder.apply(Tanh(), [gated], "curved")], "turned")
    back = builder.apply(Transpose((0, 3, 1, 2)), [turned], "back")
    pooled = builder.apply(Pooling((2, 2)), [back], "pooled")
    weight = builder.parameter("w", even(4, 6, 2, 2))
    graph = builder.graph([builder.apply(Convolution((2, 2), 4, no_bias=True), [pooled, weight], "layer")])
    integer = assert_within_bounds(graph, random_samples(graph), config_of(1))
    assert_proven_at_extremes(integer)
    assert {symbol.origin for symbol in of_op(integer, "slice_axis")} == {"layer"}
    assert not of_op(integer, "Concat")
    for name, shape in (("gated", (1, 6, 1, 1)), ("turned", (1, 1, 1, 6)), ("pooled", (1, 6, 1, 1))):
        scales = [
            integer.scales[s.name] for s in integer.graph.operators if s.origin == name and s.name in integer.scales
        ]
        assert all(scale.shape == shape and len(np.unique(scale)) > 2 for scale in scales)


@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (3, 4), (2, None), (None, 4)])
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_products_of_groups_are_exact_at_the_product_of_their_scales(
    steps: tuple[int | None, int | None], quantizer: str
) -> None:
    """Groups of different length give those that both have in common; in Python integers."""
    builder = GraphBuilder()
    sources = []
    for name, spread in (("x", SPREAD), ("y", SPREAD[::-1])):
        constant = builder.parameter(f"{name}_spread", np.asarray(spread, np.float32).reshape(1, 6, 1, 1))
        sources.append(builder.apply(BroadcastMul(), [builder.input(name, TensorType(IMAGE)), constant], f"{name}_t"))
    graph = builder.graph([builder.apply(Abs(), [builder.apply(ElemwiseMul(), sources, "product")], "out")])
    granularity = ["layer" if step is None else {"channel": step} for step in steps]
    overrides = {f"{n}_t": {"activation": {"granularity": g}} for n, g in zip("xy", granularity, strict=True)}
    config = QuantizationConfig.model_validate({"activation": {"quantizer": quantizer}, "overrides": overrides})
    integer = assert_within_bounds(graph, random_samples(graph), config)
    (product,) = of_op(integer, "elemwise_mul")
    for feeds in extreme_feeds(integer):
        x, y, found = integer.graph.with_outputs([*product.inputs, product]).evaluate(feeds)
        assert (x.astype(object) * y.astype(object) == found.astype(object)).all()
    factors = [integer.scales[symbol.name] for symbol in product.inputs]
    given = np.broadcast_to(integer.scales[product.name], (1, 6, 1, 1))
    np.testing.assert_allclose(np.broadcast_to(factors[0] * factors[1], (1, 6, 1, 1)), given)


def test_factors_in_groups_along_different_axes_are_multiplied_at_one_scale_of_one() -> None:
    """One comes from a layer's channels, the other's groups lie along the last axis, over which its reader sums."""
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((1, 4, 5, 6))) for name in "xy")
    rows = builder.parameter("rows", np.asarray([1, 0.1, 0.3, 1], np.float32).reshape(1, 4, 1, 1))
    columns = builder.parameter("columns", np.asarray(SPREAD, np.float32).reshape(1, 1, 1, 6))
    left, right = (builder.apply(BroadcastMul(), [a, b], n) for a, b, n in ((x, rows, "left"), (y, columns, "right")))
    dense = FullyConnected(3, no_bias=True, flatten=False)
    read = builder.apply(dense, [right, builder.parameter("w", normal(3, 6))], "read")
    beside = builder.apply(Pooling((2, 2)), [left], "beside")
    layer = builder.apply(conv(3, 4)[0], [beside, builder.parameter("v", conv(3, 4)[1][0])], "layer")
    product = builder.apply(ElemwiseMul(), [left, right], "product")
    graph = builder.graph([read, layer, builder.apply(Abs(), [product], "out")])
    for step in (1, 4):
        integer = assert_within_bounds(graph, random_samples(graph), config_of(step))
        assert_proven_at_extremes(integer)
