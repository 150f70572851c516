"""Rounding by GPTQ and descent: against all roundings of small layers, the textbook's GPTQ, and rounding to nearest."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

import mrt
from mrt.calibration import calibrate
from mrt.errors import DataError
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.integer_least_squares import Metric, Steps, descend, projections, successive
from mrt.quantization.algorithms.moments import corrections_from_moments, with_moments
from mrt.quantization.algorithms.needs import needs_of
from mrt.quantization.expand import expand_graph
from mrt.symbol import Array, Graph, NumpyRunner
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.pad import Pad
from tests.quantization.networks import chain


def metric_of(rng: np.random.Generator, columns: int, groups: int = 1) -> Metric:
    """Of correlated inputs, as an image's neighbours are."""
    mixed = rng.normal(size=(groups, 200, columns)) + 2 * rng.normal(size=(groups, 200, 1))
    return Metric(np.matmul(mixed.transpose(0, 2, 1), mixed) / 200)


def one_step(rows: int, step: float, top: int) -> Steps:
    return Steps(np.full((1, 1, rows), step), np.zeros((1, 1, rows)), -top, top)


def error(metric: Metric, target: Array, real: Array) -> Array:
    """e' H e of the rows of the only group, one by one."""
    off = (target - real)[0]
    return np.array([column @ metric.matrix[0] @ column for column in off.T])


def test_it_is_near_the_best_of_all_roundings_and_far_ahead_of_the_nearest() -> None:
    best_found, total = 0, np.zeros(3)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        metric, target = metric_of(rng, 4), rng.normal(size=(1, 4, 3))
        steps = one_step(3, 0.45, 3)
        first, told = successive(target, metric, steps)
        np.testing.assert_allclose(told[0], error(metric, target, steps.real(first)), rtol=1e-9)
        found, told = descend(target, metric, steps, first)
        np.testing.assert_allclose(told[0], error(metric, target, steps.real(found)), rtol=1e-9, atol=1e-12)
        errors = error(metric, target, steps.real(found))
        assert (
            (errors <= error(metric, target, steps.real(first)) + 1e-9).all()
            and (np.abs(found) <= 3).all()
            and (found == np.rint(found)).all()
        )
        every = 0.45 * np.array(list(itertools.product(range(-3, 4), repeat=4))).T[None]
        least = np.array([error(metric, target[:, :, [row]], every).min() for row in range(3)])
        assert (errors >= least - 1e-9).all()
        best_found += int((errors <= least + 1e-9).sum())
        total += np.array([errors.sum(), least.sum(), error(metric, target, steps.real(steps.nearest(target))).sum()])
    assert best_found >= 0.75 * 120 and total[0] <= 1.1 * total[1] and total[2] >= 3 * total[1]


def test_descent_ends_where_no_weight_can_move() -> None:
    rng = np.random.default_rng(5)
    metric, target, steps = metric_of(rng, 70), rng.normal(size=(1, 70, 9)), one_step(9, 0.3, 7)
    found, told = descend(target, metric, steps, steps.nearest(target))
    errors = error(metric, target, steps.real(found))
    np.testing.assert_allclose(told[0], errors)
    for column, move in itertools.product(range(70), (-1, 1)):
        moved = found.copy()
        moved[:, column] = np.clip(moved[:, column] + move, -7, 7)
        assert (error(metric, target, steps.real(moved)) >= errors - 1e-9).all()


def textbook(target: Array, matrix: Array, step: float, top: int) -> Array:
    """GPTQ as its authors write it, for one row: the inverse is Cholesky decomposed, later weights take the error."""
    order = np.argsort(-np.diag(matrix), kind="stable")
    weight, found = target[order].copy(), np.empty_like(target)
    upper = np.linalg.cholesky(np.linalg.inv(matrix[np.ix_(order, order)])).T
    for k in range(len(weight)):
        found[order[k]] = np.clip(np.rint(weight[k] / step), -top, top)
        weight[k:] -= (weight[k] - step * found[order[k]]) / upper[k, k] * upper[k, k:]
    return found


def test_one_pass_is_gptq() -> None:
    """More columns than a block, several groups, each with a matrix of its own."""
    rng = np.random.default_rng(6)
    metric, target = metric_of(rng, 150, groups=2), rng.normal(size=(2, 150, 4))
    steps = Steps(np.full((2, 1, 4), 0.3), np.zeros((2, 1, 4)), -7, 7)
    found = successive(target, metric, steps)[0]
    for group, row in itertools.product(range(2), range(4)):
        wanted = textbook(target[group, :, row], metric.matrix[group], 0.3, 7)
        np.testing.assert_array_equal(found[group, :, row], wanted)


def test_steps_and_zero_points_of_single_columns_hold() -> None:
    """The same integers as where they are taken into the weights and the matrix."""
    rng = np.random.default_rng(7)
    metric, target = metric_of(rng, 80), rng.normal(size=(1, 80, 5))
    factor, zero = rng.integers(1, 4, (1, 80, 1)) * np.ones((1, 1, 5)), rng.integers(-3, 3, (1, 80, 5))
    steps = Steps(0.2 * factor, zero, -8, 7)
    found = descend(target, metric, steps, steps.nearest(target))[0]
    scaled = Metric(metric.matrix * factor[:, :, :1] * factor[:, :, :1].transpose(0, 2, 1))
    for row in range(5):
        lone = Steps(np.full((1, 1, 1), 0.2), zero[:, :, [row]], -8, 7)
        alone = descend(target[:, :, [row]] / factor[:, :, :1], scaled, lone, steps.nearest(target)[:, :, [row]])[0]
        np.testing.assert_array_equal(alone[0, :, 0], found[0, :, row])


def test_the_scale_that_fits_integers_best() -> None:
    rng = np.random.default_rng(8)
    metric, target = metric_of(rng, 6), rng.normal(size=(1, 6, 3))
    real = np.round(target * 2) / 2
    along, square = projections(target, metric, real)
    least = error(metric, target, (along / square)[:, None] * real)
    for other in np.linspace(0.5, 1.5, 101):
        assert (least <= error(metric, target, other * real) + 1e-12).all()


# Whole networks

RNG = np.random.default_rng(9)
IMAGES = RNG.normal(size=(24, 4, 6, 6)).cumsum(axis=3).cumsum(axis=2).astype(np.float32)
"""Whose pixels resemble their neighbours."""


def weight(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(0.05, 0.3, shape)


def network() -> Graph:
    return chain(
        (1, 4, 6, 6),
        (Pad(mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), []),
        (Convolution(kernel=(3, 3), num_filter=8, no_bias=True), [weight(8, 4, 3, 3)]),
        (Relu(), []),
        (Convolution(kernel=(3, 3), num_filter=8, num_group=8, no_bias=True), [weight(8, 1, 3, 3)]),
        (Relu(), []),
        (FullyConnected(num_hidden=6, no_bias=True), [weight(6, 128)]),
    )


def quantize(graph: Graph, data: Array = IMAGES, **options: object) -> mrt.QuantizedModel:
    config = mrt.QuantizationConfig.model_validate({"preset": "mrt", "activation": {"bits": 12}} | options)
    return mrt.quantize(graph, [data], config, runner=NumpyRunner())


def outputs(graph: Graph) -> Array:
    return np.concatenate([graph.evaluate({"x": sample[None]})[0] for sample in IMAGES])


def errors(model: mrt.QuantizedModel, graph: Graph) -> Array:
    """Of the outputs for IMAGES."""
    found = np.concatenate([model.graph.evaluate(model.quantize_inputs(sample[None]))[0] for sample in IMAGES])
    return model.dequantize_outputs([found])[0] - outputs(graph)


def noise(model: mrt.QuantizedModel, graph: Graph) -> float:
    """The mean squared error of the outputs, as a share of their mean square."""
    return float(np.square(errors(model, graph)).mean() / np.square(outputs(graph)).mean())


OPTIONS: dict[str, Mapping[str, object]] = {
    "symmetric": {},
    "affine": {"quantizer": "affine"},
    "a scale a layer": {"scales": "layer"},
    "groups of input channels": {"granularity": {"channel": 2}},
    "5 bits": {"bits": 5},
    "6 bits": {"bits": 6},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("grouped", [False, True])
def test_a_network_loses_less_than_by_the_nearest(options: Mapping[str, object], grouped: bool) -> None:
    """With any quantizer of weights, and with channel groups of what they multiply."""
    graph = network()
    activation = {"bits": 12, "granularity": {"channel": 2}} if grouped else {"bits": 12}
    gptq, nearest = (
        quantize(graph, activation=activation, weight={"bits": 4, "rounding": rounding} | options)
        for rounding in ("gptq", "nearest")
    )
    assert noise(gptq, graph) < 0.75 * noise(nearest, graph)
    (note,) = (note for note in gptq.notes if "gptq" in note)
    assert note.startswith("the weights of 3 layers were rounded by gptq: the error")
    assert not [note for note in nearest.notes if "gptq" in note]


def test_the_same_integers_for_any_batches_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, digests = network(), set()
    config = mrt.QuantizationConfig.model_validate(
        {"preset": "mrt", "weight": {"bits": 4, "rounding": "gptq"}, "bias_correction": "fast"}
    )
    for cores, batches, size in ((1, [IMAGES], 16), (3, [IMAGES[:5], IMAGES[5:]], 3), (2, list(IMAGES[:, None]), 5)):
        monkeypatch.setattr("mrt.workers.cores", lambda count=cores: count)
        calibration = mrt.CalibrationConfig(batch_size=size)
        digests.add(mrt.quantize(graph, batches, config, calibration, runner=NumpyRunner()).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("correction", ["fast", "sequential"])
def test_biases_are_corrected_behind_it(correction: str) -> None:
    graph = chain((1, 4, 6, 6), (Convolution(kernel=(1, 1), num_filter=6, no_bias=True), [weight(6, 4, 1, 1)]))
    options = {"bits": 3, "rounding": "gptq"}
    corrected, plain = quantize(graph, weight=options, bias_correction=correction), quantize(graph, weight=options)
    shift, left = (np.abs(errors(each, graph).mean(axis=(0, 2, 3))) for each in (plain, corrected))
    assert (left < 0.05 * np.abs(outputs(graph)).mean()).all() and left.sum() < 0.1 * shift.sum()


def test_corrections_from_moments_bring_back_the_mean() -> None:
    graph = chain(
        (1, 4, 6, 6), (Convolution(kernel=(6, 6), num_filter=4, num_group=2, no_bias=True), [weight(4, 2, 6, 6)])
    )
    config = mrt.QuantizationConfig.model_validate({"weight": {"rounding": "gptq"}, "activation": {"bits": 16}})
    samples = Samples([IMAGES], mrt.CalibrationConfig(), NumpyRunner())
    ranges = calibrate(graph, samples.batches, needs_of(graph, config), samples.config, samples.runner)
    moments = with_moments(graph, ranges, config, samples).moments.layers["s0"]
    rough = np.round(graph.parameters["p0_0"], 1)
    moved = Graph(graph.inputs, graph.outputs, {"p0_0": rough})
    wanted = (outputs(graph) - outputs(moved)).mean(axis=(0, 2, 3))
    np.testing.assert_allclose(corrections_from_moments(moments, rough), wanted, atol=2e-3)


def test_layers_that_name_another_rounding_keep_it() -> None:
    graph = network()
    mixed, nearest = (
        quantize(graph, overrides={"s1": {"weight": {"bits": 4, "rounding": rounding}}})
        for rounding in ("gptq", "nearest")
    )
    names = {name: mixed.graph.by_name[name].inputs[1].name for name in ("s1", "s3")}
    assert (mixed.graph.parameters[names["s1"]] != nearest.graph.parameters[names["s1"]]).any()
    np.testing.assert_array_equal(mixed.graph.parameters[names["s3"]], nearest.graph.parameters[names["s3"]])
    assert any("the weights of 1 layer " in note for note in mixed.notes)


def test_what_is_left_alone_is_said() -> None:
    """A deconvolution, and a layer with more inputs than its multiplications are enough for."""
    steps = ((Deconvolution(kernel=(2, 2), num_filter=3, no_bias=True), [weight(4, 3, 2, 2)]),)
    model = quantize(chain((1, 4, 6, 6), *steps), weight={"bits": 4, "rounding": "gptq"})
    assert (
        "s0 (Deconvolution): not rounded by gptq, its outputs are sums of different numbers of products" in model.notes
    )
    wide = chain((1, 40000), (FullyConnected(num_hidden=2, no_bias=True), [weight(2, 40000)]))
    model = quantize(wide, np.ones((2, 40000), np.float32), weight={"bits": 8, "rounding": "gptq"})
    (note,) = (note for note in model.notes if "gptq" in note)
    assert note.startswith("s0 (FullyConnected): not rounded by gptq, the moments of 40000 inputs would take")


def test_moments_keep_to_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest layers come first."""
    monkeypatch.setattr("mrt.quantization.algorithms.moments.MOST_BYTES", 2**15)
    model = quantize(network(), weight={"bits": 4, "rounding": "gptq"})
    found = [note for note in model.notes if "gptq" in note]
    assert found[0] == "s5 (FullyConnected): not rounded by gptq, the moments of all layers would exceed 0 MiB"
    assert found[1].startswith("the weights of 2 layers were rounded by gptq")


def test_channels_that_were_always_zero_keep_their_weights() -> None:
    """What calibration never saw says nothing of the weights that multiply it."""
    data = IMAGES.copy()
    data[:, 2:] = 0
    model = quantize(network(), data, weight={"bits": 5, "rounding": "gptq"})
    symbol = model.graph.by_name["s1"]
    integers = model.graph.parameters[symbol.inputs[1].name].astype(np.float64)
    scale = model.scales["s1"].reshape(-1) / model.scales[symbol.inputs[0].name].reshape(-1)
    off = integers * scale.reshape(-1, 1, 1, 1) - np.clip(
        weight(8, 4, 3, 3), *(15.5 * scale.reshape(-1, 1, 1, 1) * s for s in (-1, 1))
    )
    assert (np.abs(off[:, 2:]) <= 0.51 * scale.reshape(-1, 1, 1, 1)).all()
    constant = quantize(network(), np.zeros_like(IMAGES), weight={"bits": 4, "rounding": "gptq"})
    assert constant.graph.parameters[constant.graph.by_name["s1"].inputs[1].name].any()


def test_inputs_are_cut_into_runs_where_there_are_very_many() -> None:
    """As if different runs were not correlated: each is then rounded by itself."""
    graph = chain((1, 2400), (FullyConnected(num_hidden=3, no_bias=True), [weight(3, 2400)]))
    mixed = np.random.default_rng(4).normal(size=(1200, 30)) @ np.random.default_rng(5).normal(size=(30, 2400))
    config = mrt.QuantizationConfig.model_validate({"weight": {"rounding": "gptq", "bits": 6}})
    samples = Samples([mixed.astype(np.float32)], mrt.CalibrationConfig(), NumpyRunner())
    ranges = calibrate(graph, samples.batches, needs_of(graph, config), samples.config, samples.runner)
    observed = with_moments(graph, ranges, config, samples)
    moments = observed.moments.layers["s0"]
    assert moments.x.shape == (3, 800) and moments.splits == 3
    rows = np.arange(3 * 2400).reshape(3, 2400)
    np.testing.assert_array_equal(moments.by_output(moments.by_part(rows)), rows)
    np.testing.assert_array_equal(moments.by_part(rows)[1, :, 2], rows[2, 800:1600])
    np.testing.assert_allclose(moments.x_mean.reshape(-1), mixed.mean(axis=0), atol=0.05)
    rough = np.round(graph.parameters["p0_0"], 1)
    wanted = (mixed @ (graph.parameters["p0_0"] - rough).T).mean(axis=0)
    np.testing.assert_allclose(corrections_from_moments(moments, rough), wanted, atol=0.3)
    (note,) = (note for note in expand_graph(graph, ranges.ranges, config, {}, observed).notes if "gptq" in note)
    assert float(note.split("outputs is ")[1].split(" dB")[0]) > 3


def test_it_needs_data() -> None:
    config = mrt.QuantizationConfig.model_validate({"preset": "mrt", "weight": {"rounding": "gptq"}})
    with pytest.raises(DataError, match="rounding by gptq needs calibration data, and batches is None"):
        mrt.quantize(network(), None, config)
    with pytest.raises(DataError, match="rounding by gptq reads the calibration data twice"):
        mrt.quantize(network(), iter([IMAGES]), config, runner=NumpyRunner())


def test_scales_of_least_error_need_none() -> None:
    """`mse`: integers are the nearest, and no channel's weights are farther off than at the scale of the largest."""
    graph = chain(
        (1, 20), (FullyConnected(num_hidden=12, no_bias=True), [np.random.default_rng(2).standard_t(3, (12, 20))])
    )
    data = RNG.normal(size=(30, 20)).astype(np.float32)
    exact, errors = graph.parameters["p0_0"].astype(np.float64), []
    for rounding in ("mse", "nearest"):
        model = quantize(graph, data, weight={"bits": 4, "rounding": rounding})
        integers = model.graph.parameters[model.graph.by_name["s0"].inputs[1].name].astype(np.float64)
        step = model.scales["s0"].reshape(-1, 1) / model.scales[model.graph.by_name["s0"].inputs[0].name].reshape(-1, 1)
        np.testing.assert_array_equal(integers, np.clip(np.rint(exact / step), -7, 7))
        errors.append(np.square(integers * step - exact).sum(axis=1))
    assert (errors[0] <= 1.01 * errors[1]).all() and errors[0].sum() < 0.95 * errors[1].sum()
