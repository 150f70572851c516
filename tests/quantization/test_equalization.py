"""Equalised networks compute what they did, tensors are what factors say, and calibration follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.calibration import Calibration, CalibrationConfig, Channels, Needs, calibrate
from mrt.quantization.algorithms.algorithm import Changed, ParameterChange, Samples, find_algorithm
from mrt.quantization.algorithms.bias_correction import means_around_reductions
from mrt.quantization.equalization.expected_error import Quantizers, expected_errors
from mrt.quantization.equalization.factor_sets import FactorSets, find_factor_sets, layer_axis, normalization_axis
from mrt.quantization.equalization.scaling import ScaledNetwork
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import observed_tensors
from mrt.symbol import Array, Graph, NumpyRunner, Operator, Symbol
from mrt.symbol.operators.activation import Clip, Relu, Sigmoid
from mrt.symbol.operators.arrangement import DepthToSpace
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.normalization import BatchNorm
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum
from mrt.symbol.operators.transform import Flatten
from tests.quantization.networks import chain, quantize_and_run, random_samples
from tests.quantization.scaled_networks import SCALED, Network, behind, feeds, normalized, normalized_behind_a_sum

CONFIG = CalibrationConfig(batch_size=4)
RUN = [(name, layer_axis) for name in SCALED] + [("normalized", normalization_axis)]
MADE = {**SCALED, "normalized": normalized}


def powers_of_two(sets: FactorSets, seed: int = 0) -> Array:
    """One for each factor, which no float rounds."""
    factors = 2.0 ** -np.random.default_rng(seed).integers(0, 6, len(sets.groups))
    factors[0] = 1.0
    return factors


def along(sets: FactorSets, factors: Array, symbol: Symbol) -> Array:
    """The factors of a tensor in its rank."""
    found = sets.along[symbol]
    return factors[found.numbers].reshape(tuple(-1 if a == found.axis else 1 for a in range(symbol.type.rank)))


@pytest.mark.parametrize(("name", "source_axis"), RUN, ids=[name for name, _ in RUN])
def test_factors_cancel_and_every_tensor_is_over_its_own(name, source_axis) -> None:
    """To the last bit by powers of two: outputs stay, and each tensor on the way is what it was over its factors."""
    graph = MADE[name]()
    sets = find_factor_sets(graph, source_axis)
    factors = powers_of_two(sets)
    scaled = ScaledNetwork.of(sets, factors).graph
    changed = 0
    for feed in feeds(graph):
        values = {symbol.name: value for symbol, value in scaled.walk(feed)}
        for symbol, value in graph.walk(feed):
            if symbol in sets.along:
                by = along(sets, factors, symbol)
                np.testing.assert_array_equal(values[symbol.name], value / by, err_msg=symbol.name)
                changed += bool((by != 1).any())
            elif not symbol.is_variable:
                np.testing.assert_array_equal(values[symbol.name], value, err_msg=symbol.name)
    assert changed > 0 and sets.readers
    assert [s.name for s in scaled.outputs] == [s.name for s in graph.outputs]
    for output in graph.outputs:
        assert output not in sets.along or (along(sets, factors, output) == 1).all()


@pytest.mark.parametrize("name", SCALED)
def test_any_factors_cancel_to_rounding(name: str) -> None:
    graph = SCALED[name]()
    sets = find_factor_sets(graph, layer_axis)
    factors = np.random.default_rng(1).uniform(1 / 64, 1, len(sets.groups))
    factors[0] = 1.0
    scaled = ScaledNetwork.of(sets, factors).graph
    for feed in feeds(graph):
        for before, after in zip(graph.evaluate(feed), scaled.evaluate(feed), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())


@pytest.mark.parametrize("name", ["relu6", "both limits", "concatenated", "residual", "features", "gated"])
def test_calibration_follows_from_factors(name: str) -> None:
    """It is what observing the changed network gives."""
    graph = SCALED[name]()
    sets = find_factor_sets(graph, layer_axis)
    scaled = ScaledNetwork.of(sets, powers_of_two(sets))
    readers = tuple(Channels(reader.data.name, reader.axis) for reader in sets.readers)

    def seen(network: Graph) -> Calibration:
        needs = Needs(observed_tensors(network), squares=readers) | means_around_reductions(network)
        return calibrate(network, feeds(graph), needs, CONFIG, NumpyRunner())

    before, after = seen(graph), seen(scaled.graph)
    derived = scaled.observed(before)
    assert derived is not None and derived.covers(Needs(observed_tensors(scaled.graph), squares=readers))
    assert derived.ranges == after.ranges
    assert derived.squares == after.squares != before.squares
    assert derived.means == after.means


def test_limits_beyond_which_data_lie() -> None:
    """Values above 6 are held at 6 over the factor of their channel."""
    graph = behind(Clip(0, 6))
    sets = find_factor_sets(graph, layer_axis)
    scaled = ScaledNetwork.of(sets, powers_of_two(sets)).graph
    assert any(isinstance(symbol.operator, BroadcastMinimum) for symbol in scaled.operators)
    feed = {name: 8 * value for name, value in feeds(graph, 1)[0].items()}
    clipped = next(value for symbol, value in graph.walk(feed) if isinstance(symbol.operator, Clip))
    assert (clipped == 6).any() and (clipped == 0).any()
    np.testing.assert_array_equal(scaled.evaluate(feed)[0], graph.evaluate(feed)[0])


def swish() -> Graph:
    net = Network()
    y = net.conv(net.x, 4, 3)
    return net.graph(net.conv(net.apply(ElemwiseMul(), y, net.apply(Sigmoid(), y)), 3))


def squared() -> Graph:
    net = Network()
    y = net.conv(net.x, 4, 3)
    return net.graph(net.conv(net.apply(ElemwiseMul(), y, y), 3))


def interleaved() -> Graph:
    """Several channels become one."""
    net = Network()
    y = net.apply(Relu(), net.conv(net.x, 8, 3))
    return net.graph(net.conv(net.apply(DepthToSpace(block_size=2), y), 3))


def also_an_output() -> Graph:
    net = Network()
    y = net.apply(Relu(), net.conv(net.x, 4, 3))
    return net.graph(net.conv(y, 3), y)


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (swish(), "sigmoid"),
        (squared(), "elemwise_mul"),
        (interleaved(), "depth_to_space"),
        (also_an_output(), "an output of the network"),
    ],
)
def test_what_factors_do_not_pass_is_left_and_said(graph: Graph, why: str) -> None:
    sets = find_factor_sets(graph, layer_axis)
    assert not any(found.numbers.any() for found in sets.along.values()) and not sets.members
    assert sets.obstacles["conv"] == why
    changed = change("equalize", graph)
    assert changed.graph is graph and changed.observed is not None
    assert any(f"factors would have to pass {why}: conv" in note for note in changed.notes)


def change(name: str, graph: Graph, config: QuantizationConfig | None = None, count: int = 20) -> Changed:
    chosen, data = find_algorithm(ParameterChange, name), feeds(graph, count)
    needs = Needs(observed_tensors(graph)) | chosen.needs(graph)
    observed = calibrate(graph, data, needs, CONFIG, NumpyRunner())
    return chosen.change(graph, observed, config or QuantizationConfig(), Samples(data, CONFIG, NumpyRunner()))


@pytest.mark.parametrize("name", SCALED)
def test_the_algorithm_changes_what_it_says(name: str) -> None:
    graph = SCALED[name]()
    changed = change("equalize", graph)
    assert (changed.graph is graph) == (not any(" scaled by strength " in note for note in changed.notes))
    for feed in feeds(graph, 2, seed=9):
        for before, after in zip(graph.evaluate(feed), changed.graph.evaluate(feed), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())


def test_like_channels_are_left() -> None:
    """Strength 0: where channels have one range nothing is gained, and the graph is the one given."""
    net = Network()
    first = np.ones((4, 3, 1, 1), np.float32)
    y = net.conv(net.x, 4, weight=net.builder.parameter("like", first))
    graph = net.graph(net.conv(net.apply(Relu(), y), 3))
    graph = Graph(graph.inputs, graph.outputs, {**graph.parameters, "b_conv": np.zeros((1, 4, 1, 1), np.float32)})
    changed = change("equalize", graph)
    assert changed.graph is graph
    assert any("since little is gained: conv" in note for note in changed.notes)


def test_smoothing_moves_wide_channels_into_weights() -> None:
    graph = normalized()
    parameters = dict(graph.parameters)
    parameters["gamma"] = np.float32([0.1, 0.1, 0.1, 30, 0.1, 0.1])
    graph = Graph(graph.inputs, graph.outputs, parameters)
    changed = change("smooth", graph)
    assert any("norm scaled by a share of" in note for note in changed.notes)
    width = [np.abs(g.parameters["gamma"]) for g in (graph, changed.graph)]
    assert width[1].max() / width[1].min() < 0.1 * width[0].max() / width[0].min()
    for feed in feeds(graph):
        np.testing.assert_allclose(changed.graph.evaluate(feed)[0], graph.evaluate(feed)[0], rtol=1e-4, atol=1e-4)


def with_a_wide_channel() -> Graph:
    graph = normalized_behind_a_sum()
    return Graph(graph.inputs, graph.outputs, {**graph.parameters, "gamma": np.float32([0.1, 0.1, 0.1, 30, 0.1, 0.1])})


def test_layers_get_factors_of_their_own_where_a_sum_reads_the_normalisation_too() -> None:
    graph = with_a_wide_channel()
    changed = change("smooth", graph)
    assert any("norm_smoothed scaled by a share of" in note for note in changed.notes)
    assert [reader.name for reader in changed.graph.consumers[changed.graph.by_name["norm_smoothed"]]] == ["dense"]
    assert changed.graph.by_name["stream"].inputs[0] is changed.graph.by_name["norm"]
    again = calibrate(changed.graph, feeds(graph, 20), Needs(observed_tensors(changed.graph)), CONFIG, NumpyRunner())
    assert changed.observed is not None and changed.observed.ranges.keys() == again.ranges.keys()
    for name, found in again.ranges.items():
        assert (changed.observed.ranges[name].lo, changed.observed.ranges[name].hi) == pytest.approx(
            (found.lo, found.hi), rel=1e-5, abs=1e-5
        )
    for feed in feeds(graph):
        np.testing.assert_allclose(changed.graph.evaluate(feed)[0], graph.evaluate(feed)[0], rtol=1e-4, atol=1e-4)


def test_such_factors_leave_less_error_and_nothing_where_channels_are_alike() -> None:
    graph = with_a_wide_channel()
    fine = {name: {"activation": {"bits": 16}} for name in ("x", "stream")}
    smoothed, plain = (
        error_db(
            quantized(graph, feeds(graph, 20), changes, overrides=fine, weight={"bits": 12}), graph, feeds(graph, 8)
        )
        for changes in (["smooth"], [])
    )
    assert smoothed < plain - 3
    alike = Graph(graph.inputs, graph.outputs, {**graph.parameters, "gamma": np.ones(6, np.float32)})
    weights = {name: np.ones_like(v) for name, v in graph.parameters.items() if v.shape == (8, 6)}
    alike = Graph(alike.inputs, alike.outputs, {**alike.parameters, **weights, "beta": np.zeros(6, np.float32)})
    assert set(change("smooth", alike).graph.by_name) == set(alike.by_name)


@pytest.mark.parametrize("weights", ["symmetric", "affine"])
def test_the_expected_error_is_what_rounding_makes(weights: str) -> None:
    """Of a layer that reads independent uniform channels, rounded in NumPy; both kinds of error, each alone."""
    net = Network((1, 8))
    graph = net.graph(net.dense(net.apply(Relu(), net.dense(net.x, 6)), 40))
    config = QuantizationConfig.model_validate({"weight": {"bits": 5, "quantizer": weights}, "activation": {"bits": 6}})
    reader = find_factor_sets(graph, layer_axis).readers[-1]
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (4000, 6)) * [1, 0.5, 0.1, 0.9, 0.02, 0.3]
    weight = graph.parameters[reader.layer.inputs[1].name].astype(np.float64)
    needs = Needs(observed_tensors(graph))
    observed = calibrate(graph, feeds(graph), needs, CONFIG, NumpyRunner())
    squares = {Channels(reader.data.name, 1): tuple(np.square(x).mean(axis=0).tolist())}
    quantizers = Quantizers.of(graph, config, Calibration(observed.ranges, {}, squares))
    ends = np.zeros(6), x.max(axis=0)
    factors = [np.ones(6), np.sqrt(x.max(axis=0)), x.max(axis=0)]
    expected = expected_errors(reader, ends, factors, quantizers)
    measured = []
    for f in factors:
        scaled, by = x / f, weight * f
        step = scaled.max() / 63
        lo, hi = np.minimum(by.min(axis=1), 0), np.maximum(by.max(axis=1), 0)
        steps = (hi - lo) / 31 if weights == "affine" else np.maximum(hi, -lo) / 15
        rounded = np.rint(by / steps[:, None]) * steps[:, None]
        errors = [(np.rint(scaled / step) * step - scaled) @ by.T, scaled @ (rounded - by).T]
        of_x, of_w = (np.square(error).mean(axis=0).sum() for error in errors)
        # Of the weights' error a quarter counts; correlated through the means of x it is another amount for each row.
        measured.append((of_x + 0.25 * of_w) / (np.square(x).mean(axis=0) * np.square(weight)).sum())
    np.testing.assert_allclose(expected, measured, rtol=0.5)
    assert np.argmin(expected) == np.argmin(measured)


@dataclass
class Counted:
    """Batches that count how often they are read."""

    batches: list[dict[str, Array]]
    read: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        self.read.append(1)
        return iter(self.batches)


def convolutions(activation: Operator) -> Graph:
    """A dense, a depthwise and a pointwise layer, each with an activation, and one more."""
    net = Network((1, 3, 8, 8), seed=3)
    y = net.apply(activation, net.conv(net.x, 8, 3))
    z = net.apply(activation, net.conv(y, 8, 3, groups=8))
    return net.graph(net.conv(net.apply(activation, net.conv(z, 8)), 4))


def spread() -> Graph:
    """Such layers, whose channels were scaled by factors from 1 to 32."""
    sets = find_factor_sets(convolutions(Relu()), layer_axis)
    return ScaledNetwork.of(sets, powers_of_two(sets)).graph


def error_db(model: mrt.QuantizedModel, graph: Graph, data: list[dict[str, Array]]) -> float:
    noise = signal = 0.0
    for feed in data:
        real = graph.evaluate(feed)[0]
        found = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(feed)))[0]
        noise, signal = noise + np.square(found - real).sum(), signal + np.square(real).sum()
    return float(10 * np.log10(noise / signal))


def quantized(graph: Graph, batches: object, changes: Sequence[str], **options: object) -> mrt.QuantizedModel:
    fine = {"x": {"activation": {"bits": 12}}}
    config = QuantizationConfig.model_validate(
        {"preset": "mrt", "parameter_changes": changes, "overrides": fine, **options}
    )
    return mrt.quantize(graph, batches, config, CONFIG, runner=NumpyRunner())  # type: ignore[arg-type]


def with_batch_norms() -> Graph:
    net = Network()
    y = net.x
    for outputs in (6, 5):
        y = net.conv(y, outputs, 3)
        shift, scale, mean = (net.parameter(name, outputs) for name in ("beta", "gamma", "mean"))
        variance = net.builder.parameter("variance", np.linspace(0.1, 9, outputs).astype(np.float32))
        y = net.apply(Relu(), net.apply(BatchNorm(fix_gamma=False), y, scale, shift, mean, variance))
    return net.graph(net.dense(net.apply(Flatten(), y), 3))


@pytest.mark.parametrize("name", [*SCALED, "batch norms"])
def test_integers_are_proven_and_near(name: str, tmp_path: Path) -> None:
    """From the network as read to the saved model, whose certificate is derived again."""
    graph = SCALED[name]() if name in SCALED else with_batch_norms()
    model = quantized(graph, feeds(graph, 20), ("equalize",), activation={"quantizer": "affine"})
    model.save(tmp_path)
    assert mrt.verify(tmp_path).max_bits <= 32
    assert error_db(model, graph, feeds(graph, 5)) < -22


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_integers_lose_less(quantizer: str) -> None:
    graph = spread()
    activation = {"quantizer": quantizer, "bits": 6}
    plain, equalized = (
        quantized(graph, feeds(graph, 40), changes, activation=activation) for changes in ((), ("equalize",))
    )
    test = feeds(graph, 20, seed=8)
    assert error_db(equalized, graph, test) < error_db(plain, graph, test) - 3
    assert sum("scaled by strength" in note for note in equalized.notes) == 3


def test_limits_cost_the_integers_nothing() -> None:
    """Behind factors of at most 1 every limit lies at or beyond what the quantizer holds."""
    graph = convolutions(Clip(0, 6))
    data = [{name: 3 * value for name, value in feed.items()} for feed in feeds(graph, 20)]
    plain, equalized = (quantized(graph, data, changes) for changes in ((), ("equalize",)))
    assert sum("scaled by strength" in note for note in equalized.notes) >= 2
    assert equalized.graph.count_operators() == plain.graph.count_operators()


@pytest.mark.parametrize(("method", "reads"), [("max", 1), ("percentile", 2)])
def test_data_are_read_again_only_where_ranges_do_not_follow(method: str, reads: int) -> None:
    graph = spread()
    batches = Counted(feeds(graph, 10))
    config = QuantizationConfig(preset="mrt", parameter_changes=("equalize",))
    mrt.quantize(graph, batches, config, CalibrationConfig(method=method), runner=NumpyRunner())
    assert len(batches.read) == reads


def test_a_weight_with_one_scale_and_a_tensor_with_groups_are_left() -> None:
    graph = spread()
    for options in ({"weight": {"scales": "layer"}}, {"activation": {"granularity": {"channel": 1}}}):
        changed = change("equalize", graph, QuantizationConfig.model_validate(options))
        assert changed.graph is graph


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
@pytest.mark.parametrize("record", [BroadcastMinimum, BroadcastMaximum])
def test_a_comparison_that_always_takes_one_operand_is_that(record: type[Operator], quantizer: str) -> None:
    """Behind a relu, against limits by channel beyond all that its quantizer holds, and against such as are not."""
    beyond, within = (
        ([9.0, 7.0, 8.0, 1e3], [9.0, 0.5, 8.0, 1e3]) if record is BroadcastMinimum else ([0.0] * 4, [0.5] * 4)
    )
    for limits, left in ((beyond, 0), (within, 1)):
        graph = chain((1, 4, 3), (Relu(), []), (record(), [np.reshape(limits, (4, 1))]), (Sum(axis=(1,)), []))
        options = QuantizationConfig.model_validate({"activation": {"quantizer": quantizer}})
        outcome = quantize_and_run(graph, random_samples(graph), options)
        assert sum(isinstance(symbol.operator, record) for symbol in outcome.integer.graph.operators) == left
        assert outcome.relative_error < 0.02
