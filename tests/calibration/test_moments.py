"""Moments of layers are exact sums over patches: as NumPy forms them one by one, for any batches, chunks and order."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from mrt.calibration.layer_moments import LayerMoments
from mrt.calibration.moments import MOST_ROWS, ONE_SAMPLE, Reading, gather
from mrt.calibration.network import FloatNetwork
from mrt.calibration.stream import places
from mrt.symbol import Array, Evaluate, Graph, Operator
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.rebatch import sized
from tests.quantization.networks import chain

LAYERS: dict[str, tuple[tuple[int, ...], Operator, tuple[int, ...]]] = {
    "dense convolution": ((6, 7), Convolution(kernel=(3, 2), num_filter=4, no_bias=True), (4, 3, 3, 2)),
    "strides, dilation and padding": (
        (9, 8),
        Convolution(kernel=(3, 3), num_filter=2, stride=(2, 3), dilate=(1, 2), pad=(1, 2), no_bias=True),
        (2, 3, 3, 3),
    ),
    "depthwise": ((5, 5), Convolution(kernel=(3, 3), num_filter=6, num_group=3, no_bias=True), (6, 1, 3, 3)),
    "one axis": ((8,), Convolution(kernel=(3,), num_filter=2, no_bias=True), (2, 3, 3)),
    "flattened": ((2, 2), FullyConnected(num_hidden=5, no_bias=True), (5, 12)),
    "rows of a matrix": ((7,), FullyConnected(num_hidden=5, no_bias=True, flatten=False), (5, 7)),
}
CASES = pytest.mark.parametrize("spatial, operator, weight", LAYERS.values(), ids=LAYERS.keys())


def network(spatial: tuple[int, ...], operator: Operator, weight: tuple[int, ...], samples: int = 1) -> Graph:
    return chain((samples, 3, *spatial), (operator, [np.random.default_rng(1).normal(size=weight)]))


def data(count: int, spatial: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(count, 3, *spatial)).astype(np.float32)


def reading(graph: Graph, positions: int = 10**6, rank: int = 4, scale: float = 1 / 32) -> Reading:
    scales = np.full((1,) * rank, scale)
    return Reading(graph.outputs[0], scales, np.full((1,) * rank, 120), 0, 255, 2.0**-10, positions, crosses=True)


def observed(graph: Graph, asked: Reading, batches: list[Array], length: int) -> LayerMoments:
    """The moments of the network's one layer, run by NumPy `length` samples at a time."""
    given = FloatNetwork(graph, OneByOne(), length).values(graph.outputs)
    (found,) = gather([asked], places(batches, graph.inputs, length, None), given, sum(map(len, batches))).values()
    return found


class OneByOne:
    """Runs a network of one sample for each of those that it is given, by NumPy."""

    def prepare(self, graph: Graph) -> Evaluate:
        single = sized(graph, 1)

        def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
            return [np.concatenate([single.evaluate({"x": sample[None]})[0] for sample in feeds["x"]])]

        return evaluate


@CASES
def test_weights_times_patches_are_the_outputs(spatial, operator, weight) -> None:
    graph, x = network(spatial, operator, weight), data(1, spatial)
    y = np.moveaxis(graph.evaluate({"x": x})[0], graph.outputs[0].channel_axis, -1)
    positions = np.arange(math.prod(y.shape[:-1]))[::-1]
    patches = operator.patches(x, positions)
    rows = graph.parameters["p0_0"].reshape(operator.weight_groups(), -1, patches.shape[2])
    found = np.einsum("grk,gok->rgo", patches, rows).reshape(len(positions), -1)
    np.testing.assert_allclose(found, y.reshape(-1, y.shape[-1])[positions], rtol=1e-4, atol=1e-5)


def test_outputs_that_are_no_such_sums_have_no_patches() -> None:
    operator = Deconvolution(kernel=(2, 2), num_filter=2, no_bias=True)
    assert operator.patches(np.zeros((1, 3, 4, 4)), np.zeros(0, np.int64)) is None


@CASES
def test_moments_are_sums_over_all_positions(spatial, operator, weight) -> None:
    """In Python integers, position by position."""
    graph, x = network(spatial, operator, weight), data(3, spatial)
    asked = reading(graph, rank=x.ndim)
    found = observed(graph, asked, [x], 2)
    y = np.concatenate([graph.evaluate({"x": sample[None]})[0] for sample in x])
    y = np.rint(np.moveaxis(y, graph.outputs[0].channel_axis, -1).astype(np.float64) * 2**10).astype(int)
    y = y.reshape(-1, y.shape[-1])
    integers = np.clip(np.rint(x * np.float32(32)) + 120, 0, 255).astype(int) - 120
    patches = operator.patches(integers, np.arange(len(y))).astype(object)
    assert found.count == len(y)
    for group, rows in enumerate(patches):
        outputs = np.array_split(y.astype(object), len(patches), axis=1)[group]
        np.testing.assert_array_equal(found.x[group], rows.sum(axis=0).astype(float))
        np.testing.assert_array_equal(found.xx[group], (rows.T @ rows).astype(float))
        np.testing.assert_array_equal(found.xy[group], (rows.T @ outputs).astype(float))
    np.testing.assert_array_equal(found.y, y.sum(axis=0))


def same(one: LayerMoments, other: LayerMoments) -> bool:
    sums = ((getattr(each, name) for each in (one, other)) for name in ("xx", "x", "y", "xy"))
    return one.count == other.count and all(np.array_equal(*pair) for pair in sums)


@pytest.mark.parametrize("bits", [8, 16])
def test_neither_batches_nor_chunks_nor_cores_show(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a part of the positions is taken too."""
    graph, x = network(*LAYERS["dense convolution"]), data(40, (6, 7))
    for positions in (10**6, 300):
        asked = reading(graph, positions, scale=2.0**-5 if bits == 8 else 2.0**-13)
        asked = Reading(
            **{**vars(asked), "lo": -(2 ** (bits - 1)), "hi": 2 ** (bits - 1), "zero_points": np.zeros(1, int)}
        )
        whole = observed(graph, asked, [x], 40)
        assert whole.count == min(positions, 40 * 4 * 6)
        for cores in (1, 3):
            monkeypatch.setattr("mrt.workers.cores", lambda count=cores: count)
            for length, batches in ((1, [x]), (7, [x[:3], x[3:]]), (16, [x[i : i + 1] for i in range(40)])):
                assert same(observed(graph, asked, batches, length), whole)
        if positions == 10**6:
            assert same(observed(graph, asked, [x[::-1]], 7), whole)


@pytest.mark.parametrize("case", ["dense convolution", "depthwise"])
def test_sums_beyond_what_float32_holds_are_exact(case: str) -> None:
    """Data at the quantizer's ends, of which fewer rows than wait to be multiplied leave the integers of float32."""
    spatial, operator, weight = LAYERS[case]
    graph, count = network(spatial, operator, weight), MOST_ROWS // 4
    x = np.where(data(count, spatial) > 1, np.float32(254 / 32), np.float32(255 / 32))
    asked = Reading(**{**vars(reading(graph)), "zero_points": np.zeros((1,) * 4, int)})
    found = observed(graph, asked, [x], 16)
    positions = np.arange(found.count)
    rows = operator.patches(np.rint(x.astype(np.float64) * 32), positions)
    assert found.count > MOST_ROWS
    np.testing.assert_array_equal(found.xx, np.matmul(rows.transpose(0, 2, 1), rows))


def test_moments_merge() -> None:
    graph, x = network(*LAYERS["depthwise"]), data(9, (5, 5))
    asked = reading(graph)
    parts = [observed(graph, asked, [part], 2) for part in (x[:4], x[4:])]
    assert same(parts[0].merge(parts[1]), observed(graph, asked, [x], 3))


def test_the_positions_taken_are_spread_over_samples_and_places() -> None:
    """No more than asked for in all, and than ONE_SAMPLE of a sample; other ones of each sample."""
    side, taken = 24, []
    graph = chain((1, 1, side, side), (Convolution(kernel=(1, 1), num_filter=1, no_bias=True), [np.ones((1, 1, 1, 1))]))
    place = np.arange(side * side, dtype=np.float32).reshape(1, 1, side, side)
    for number, share in ((4, 100), (4, 10**4)):
        asked = Reading(graph.outputs[0], np.ones((1,) * 4), np.zeros((1,) * 4, int), 0, 1023, 1.0, share)
        seen: list[Array] = []
        for sample in range(number):
            x = np.zeros((number, 1, side, side), np.float32)
            x[sample] = place + 1
            found = observed(graph, asked, [x], 2)
            assert found.count == min(share, number * ONE_SAMPLE) and found.count % ONE_SAMPLE in (0, 100)
            seen.append(found.x)
        taken.append(seen)
        means = np.array(seen).reshape(-1) / (found.count / number)
        np.testing.assert_allclose(means, side * side / 2, rtol=0.05)
    assert len(set(map(float, np.array(taken[0]).reshape(-1)))) > 1


def test_real_moments_are_those_of_the_values() -> None:
    """Covariances and means, near those of float where steps are small."""
    graph, x = network(*LAYERS["flattened"]), data(60, (2, 2))
    asked = Reading(
        graph.outputs[0], np.full((1,) * 4, 2.0**-12), np.zeros((1,) * 4, int), -(2**15), 2**15, 2.0**-12, 10**6, True
    )
    found = observed(graph, asked, [x], 60)
    rows, y = x.reshape(60, -1), x.reshape(60, -1) @ graph.parameters["p0_0"].T
    np.testing.assert_allclose(found.x_mean[0], rows.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(found.y_mean, y.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(found.covariance[0], np.cov(rows.T, bias=True), atol=1e-3)
    np.testing.assert_allclose(found.variance[0], rows.var(axis=0), atol=1e-3)
    crossed = (rows - rows.mean(axis=0)).T @ (y - y.mean(axis=0)) / 60
    np.testing.assert_allclose(found.cross_covariance[0], crossed, atol=2e-3)
