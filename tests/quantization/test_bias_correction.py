"""What corrections are, against float64, and that sequential ones make the means right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.api import quantize
from mrt.backend import TvmRunner
from mrt.calibration import Calibration, CalibrationConfig
from mrt.errors import ConfigError, DataError, QuantizationError
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.bias_correction import find_corrections, reductions
from mrt.quantization.algorithms.fast_bias_correction import fast_corrections
from mrt.quantization.algorithms.sequential_bias_correction import sequential_corrections
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.integer_graph import IntegerGraph, input_quantization
from mrt.quantization.options import QuantizationConfig
from mrt.report.inspect import explain
from mrt.symbol import Array, Graph, NumpyRunner, Operator
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.interval import Interval
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Reshape
from tests.quantization.corrected_networks import (
    BATCH,
    QUANTIZERS,
    RNG,
    RUNS,
    SINGLE,
    calibrated,
    data_for,
    options,
    sequential,
    weights,
)
from tests.quantization.networks import chain


def channel_mean(values: Array, axis: int) -> Array:
    found: Array = values.astype(np.float64).mean(axis=tuple(k for k in range(values.ndim) if k != axis))
    return found


def mean_errors(graph: Graph, integer: IntegerGraph, x: Array, tensors: Mapping[str, str]) -> dict[str, Array]:
    """By float tensor, float mean - integer mean of each channel over the samples, in steps of the integer tensor.

    tensors: integer tensors by the float ones. Sample by sample; every integer must keep to its proven bounds.
    """
    intervals = {s.name: Interval.of(t.lo, t.hi, s.shape) for s, t in integer.inputs}
    bounds = analyse_bounds(integer.graph, intervals)
    real: dict[str, list[Array]] = {name: [] for name in tensors}
    integers: dict[str, list[Array]] = {name: [] for name in tensors}
    by_integer = {q: name for name, q in tensors.items()}
    for sample in x:
        for symbol, value in graph.walk({"x": sample[None]}):
            if symbol.name in real:
                real[symbol.name].append(value)
        fed = {s.name: input_quantization(s, t).quantize(sample[None]) for s, t in integer.inputs}
        for symbol, value in integer.graph.walk(fed):
            assert (value >= bounds[symbol.name].lo).all() and (value <= bounds[symbol.name].hi).all()
            if symbol.name in by_integer:
                integers[by_integer[symbol.name]].append(value)
    errors = {}
    for name, other in tensors.items():
        axis = 1 if graph.by_name[name].type.rank != 3 else 2
        scale, zero_point = integer.scales[other], integer.zero_points.get(other, 0)
        found = channel_mean(scale * (np.stack(integers[name])[:, 0].astype(np.float64) - zero_point), axis)
        errors[name] = (channel_mean(np.stack(real[name])[:, 0], axis) - found) / scale.reshape(-1)
    return errors


def accumulators(graph: Graph, integer: IntegerGraph) -> dict[str, str]:
    """For every reduction, or the addition of a bias to its accumulator, the last integer tensor before any rescaling.

    Until then there is one scale for each channel.
    """
    found = {}
    for symbol in reductions(graph):
        for tensor in (symbol, *(s for s in graph.consumers[symbol] if s.op == "broadcast_add")):
            forms = [s.name for s in integer.graph.operators if s.origin == tensor.name and s.name in integer.scales]
            forms = [name for name in forms if integer.scales[name].size > 1]
            if forms:
                found[symbol.name] = (tensor.name, forms[-1])
    return dict(found.values())


# -- fast ------------------------------------------------------------------------------------------------------------


def shift_of_constant_images(operator: Operator, error: Array, mean: Array, shape: tuple[int, ...]) -> Array:
    """What an error of the weight adds to the mean of each output channel, if each input channel is constant.

    A fully connected layer has a channel for each element that it reads. Written out by taps: a convolution adds all of
    them up at every position, a deconvolution of n positions adds n times all of them up over its output.
    """
    if isinstance(operator, FullyConnected):
        return error @ mean
    taps = error.reshape(*error.shape[:2], -1).sum(axis=2)
    groups = operator.num_group  # type: ignore[attr-defined]
    inputs = len(mean) // groups
    if isinstance(operator, Deconvolution):
        sums = np.concatenate(
            [mean[g * inputs : (g + 1) * inputs] @ taps[g * inputs : (g + 1) * inputs] for g in range(groups)]
        )
        return sums * np.prod(shape[2:]) / np.prod(operator.output_spatial(shape[2:]))
    outputs = len(taps) // groups
    return np.array([taps[o] @ mean[o // outputs * inputs :][:inputs] for o in range(len(taps))])


@pytest.mark.parametrize("activation", ["symmetric", "affine"])
@pytest.mark.parametrize("name", SINGLE)
def test_fast_is_the_rounding_of_the_weights_times_the_mean(name: str, activation: str) -> None:
    (graph, x), config = RUNS[name], options("fast", activation)
    operator, rows = graph.outputs[0].operator, graph.parameters["p0_0"].astype(np.float64)
    integer = expand_graph(graph, calibrated(graph, x).ranges, config)
    accumulated = next(integer.scales[s.name] for s in integer.graph.operators if s.name in integer.scales)
    scale = (accumulated / integer.scales["x"]).reshape(-1)
    shape = (1, -1, 1, 1) if isinstance(operator, Deconvolution) else (-1, *(1,) * (rows.ndim - 1))
    if isinstance(operator, Deconvolution):
        scales = np.concatenate([np.repeat(part[None], rows.shape[0] // operator.num_group, 0) for part in
                                 scale.reshape(operator.num_group, -1)])[:, :, None, None]  # fmt: skip
    else:
        scales = scale.reshape(shape)
    error = rows - scales * integer.graph.parameters["p0_0"]
    is_flat = isinstance(operator, FullyConnected) and operator.flatten
    mean = channel_mean(x.reshape(*x.shape[:1], -1) if is_flat else x, 2 if name.endswith("rows") else 1)
    expected = shift_of_constant_images(operator, error, mean, graph.inputs[0].shape)
    found = fast_corrections(graph, calibrated(graph, x), config)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found["s0"], expected, rtol=0, atol=1e-6)


def test_fast_knows_the_zero_points_of_weights() -> None:
    """A fully connected layer's real weights are what its integers answer to one input at a time."""
    graph, x = RUNS["FullyConnected"]
    config, found = options("fast", "affine", "affine"), calibrated(*RUNS["FullyConnected"])
    integer = expand_graph(graph, found.ranges, config)
    target = integer.inputs[0][1]
    answers = np.zeros((4, 6))
    at_zero = _last_accumulator(integer, np.full((1, 6), target.zero_point))
    for k in range(6):
        fed = np.full((1, 6), target.zero_point)
        fed[0, k] += 100
        answers[:, k] = (_last_accumulator(integer, fed) - at_zero)[0] / (100 * target.scale)
    expected = (graph.parameters["p0_0"] - answers) @ x.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(fast_corrections(graph, found, config)["s0"], expected, rtol=0, atol=1e-9)


def _last_accumulator(integer: IntegerGraph, fed: Array) -> Array:
    """Real values of the accumulator, without rescaling."""
    name = [s.name for s in integer.graph.operators if s.op in ("FullyConnected", "broadcast_add", "clip")]
    values = {symbol.name: value for symbol, value in integer.graph.walk({"x": fed.astype(np.uint8)})}
    wanted = [n for n in name if n in integer.scales and integer.scales[n].size > 1][-1]
    found: Array = integer.scales[wanted] * values[wanted]
    return found


@pytest.mark.parametrize("name", ["convolution", "depthwise", "FullyConnected", "Deconvolution"])
def test_fast_is_exact_where_channels_are_constant(name: str) -> None:
    """Then nothing is approximate but the rounding of the input, which is made exact."""
    graph, _ = RUNS[name]
    levels = np.array([255, 40, 120, 3, 77, 200]).reshape(-1, *(1,) * (graph.inputs[0].type.rank - 2))
    x = np.broadcast_to(levels / 255, (5, *graph.inputs[0].shape[1:])).astype(np.float32)
    config, found = options("fast"), calibrated(graph, x)
    ranges = found.ranges
    corrections = fast_corrections(graph, found, config)
    before = expand_graph(graph, ranges, config)
    after = expand_graph(graph, ranges, config, corrections)
    wrong = mean_errors(graph, before, x, accumulators(graph, before))["s0"]
    right = mean_errors(graph, after, x, accumulators(graph, after))["s0"]
    assert np.abs(wrong).max() > 20 and np.abs(right).max() <= 0.5 + 0.01


# -- sequential ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("activation", "weight"), QUANTIZERS)
@pytest.mark.parametrize("name", RUNS)
def test_sequential_makes_means_right_to_a_step(name: str, activation: str, weight: str) -> None:
    """Half a step of the accumulator for the rounding of the correction, half a one for that of a bias."""
    (graph, x), config = RUNS[name], options("sequential", activation, weight)
    ranges, corrections = calibrated(graph, x).ranges, sequential(graph, x, config)
    assert set(corrections) == {symbol.name for symbol in reductions(graph)}
    before = expand_graph(graph, ranges, config)
    after = expand_graph(graph, ranges, config, corrections)
    wrong = mean_errors(graph, before, x, accumulators(graph, before))
    right = mean_errors(graph, after, x, accumulators(graph, after))
    for tensor, error in right.items():
        bound = 1.0 if tensor.startswith("biased") else 0.5
        assert np.abs(error).max() <= bound + 1e-3, tensor
        assert np.abs(wrong[tensor]).max() > 5 * bound, tensor


def test_an_injected_shift_is_taken_back() -> None:
    """A float mean that is another by a known amount makes a correction that is another by just that amount."""
    graph, x = RUNS["network"]
    config, found = options("sequential"), calibrated(graph, x)
    samples = Samples([x], BATCH, NumpyRunner())
    last = reductions(graph)[-1]
    shift = RNG.normal(0, 3, 5)
    key = next(channels for channels in found.means if channels.tensor == last.name)
    moved = replace(found, means={**found.means, key: tuple(np.asarray(found.means[key]) + shift)})
    plain = sequential_corrections(graph, found, config, samples)
    shifted = sequential_corrections(graph, moved, config, samples)
    np.testing.assert_allclose(shifted[last.name] - plain[last.name], shift, rtol=1e-12)
    assert all(np.array_equal(shifted[name], plain[name]) for name in plain if name != last.name)


def test_weights_that_all_round_to_zero_are_replaced_by_their_mean() -> None:
    """A channel of 0.003 beside one of 1 is lost at 8 bits per layer; on constant data a correction restores it."""
    graph = chain((1, 1), (FullyConnected(num_hidden=2, no_bias=True), [np.array([[1.0], [0.003]])]))
    x = np.ones((3, 1), np.float32)
    for mode in ("fast", "sequential"):
        config = QuantizationConfig.model_validate({"bias_correction": mode, "weight": {"scales": "layer"}})
        found = calibrated(graph, x)
        corrections = find_corrections(graph, found, config, Samples([x], BATCH, NumpyRunner()))
        assert corrections["s0"] == pytest.approx([0.0, 0.003], abs=1e-4)
        assert corrections["s0"][1] == pytest.approx(0.003, abs=1e-9)
        integer = expand_graph(graph, found.ranges, config, corrections)
        output = integer.outputs[0]
        real = output.step * integer.graph.evaluate({"x": np.array([[255]], np.uint8)})[0]
        assert real[0] == pytest.approx([1.0, 0.003], abs=float(integer.scales["s0"].max()))


@pytest.mark.parametrize("batch", [1, 3, 13, 16])
def test_any_batch_gives_the_same_bits(batch: int) -> None:
    graph, x = RUNS["network"]
    config, found = options("sequential", "affine", "affine"), calibrated(graph, x)
    expected = sequential_corrections(graph, found, config, Samples([x], BATCH, NumpyRunner()))
    cut = CalibrationConfig(batch_size=batch)
    given = sequential_corrections(graph, found, config, Samples([x[:5], x[5:]], cut, NumpyRunner()))
    assert all(np.array_equal(given[name], expected[name]) for name in expected)


def test_only_the_samples_of_calibration_count() -> None:
    graph, x = RUNS["network"]
    config, found = options("sequential"), calibrated(graph, x)
    limited = Samples([x], CalibrationConfig(batch_size=4, samples=6), NumpyRunner())
    expected = sequential_corrections(graph, found, config, Samples([x[:6]], BATCH, NumpyRunner()))
    given = sequential_corrections(graph, found, config, limited)
    assert all(np.array_equal(given[name], expected[name]) for name in expected)


def test_a_graph_that_bakes_its_batch_in_is_corrected_too() -> None:
    graph = chain(
        (1, 4),
        (FullyConnected(num_hidden=6, no_bias=True), [weights(6, 4)]),
        (Reshape(shape=(1, 6)), []),
        (FullyConnected(num_hidden=3, no_bias=True), [weights(3, 6)]),
    )
    x, config = data_for(graph), options("sequential")
    integer = expand_graph(graph, calibrated(graph, x).ranges, config, sequential(graph, x, config))
    errors = mean_errors(graph, integer, x, accumulators(graph, integer))
    assert all(np.abs(error).max() <= 0.5 + 1e-3 for error in errors.values())


@pytest.mark.slow
def test_compiled_pieces_give_what_numpy_gives() -> None:
    graph, x = RUNS["network"]
    config, found = options("sequential", "affine", "affine"), calibrated(graph, x)
    by_numpy, by_tvm = (
        sequential_corrections(graph, found, config, Samples([x], BATCH, runner))
        for runner in (NumpyRunner(), TvmRunner())
    )
    assert all(np.array_equal(by_tvm[name], by_numpy[name]) for name in by_numpy)


# -- what stays as it was --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("activation", "weight"), QUANTIZERS)
def test_corrections_change_neither_weights_nor_multipliers(activation: str, weight: str) -> None:
    (graph, x), config = RUNS["network"], options("sequential", activation, weight, bits=8)
    ranges, corrections = calibrated(graph, x).ranges, sequential(graph, x, config)
    assert all(values.any() for values in corrections.values())
    before = expand_graph(graph, ranges, config).graph.parameters
    after = expand_graph(graph, ranges, config, corrections).graph.parameters
    names = [symbol.inputs[1].name for symbol in reductions(graph)]
    names += [name for name in before if name.endswith(("_frac", "_shifted_by"))]
    assert len(names) > 10
    for name in names:
        np.testing.assert_array_equal(after[name], before[name])


def test_corrections_join_bias_and_zero_point_in_one_constant() -> None:
    graph = chain(
        (1, 3), (FullyConnected(num_hidden=2, no_bias=True), [weights(2, 3)]), (BroadcastAdd(), [weights(1, 2)])
    )
    x, config = data_for(graph), options("fast", "affine", bits=8)
    integer = expand_graph(graph, calibrated(graph, x).ranges, config, {"s0": np.array([0.5, -0.25])})
    assert integer.graph.count_operators()["broadcast_add"] == 1
    assert {name: list(values) for name, values in integer.corrections.items()} == {"s0": [0.5, -0.25]}


def test_without_correction_nothing_is_found_or_needed() -> None:
    graph, x = RUNS["network"]
    assert find_corrections(graph, calibrated(graph, x), QuantizationConfig()) == {}


# -- errors, and the API ---------------------------------------------------------------------------------------------


def test_what_is_missing_or_does_not_fit_is_named() -> None:
    graph, x = RUNS["convolution"]
    found = calibrated(graph, x)
    with pytest.raises(ConfigError, match="bias_correction is sequential: calibration data is needed"):
        find_corrections(graph, found, options("sequential"))
    with pytest.raises(QuantizationError, match=r"s0 \(Convolution\): the mean of x along axis 1 is missing"):
        fast_corrections(graph, Calibration(found.ranges), options("fast"))
    for wrong in (np.zeros(3), np.full(4, np.nan)):
        with pytest.raises(QuantizationError, match=r"s0 \(Convolution\): a correction .* 4 finite values"):
            expand_graph(graph, found.ranges, options("fast"), {"s0": wrong})
    with pytest.raises(QuantizationError, match="given for conv9, which the graph does not have"):
        expand_graph(graph, found.ranges, options("fast"), {"conv9": np.zeros(4)})


def test_an_iterator_cannot_be_read_twice() -> None:
    graph, x = RUNS["convolution"]
    with pytest.raises(DataError, match="batches is a generator, which can be read once; give a list"):
        quantize(graph, (x for _ in range(1)), options("sequential"), runner=NumpyRunner())
    assert quantize(graph, (x for _ in range(1)), options("fast"), runner=NumpyRunner()).corrections["s0"].any()


def test_the_model_keeps_its_corrections(tmp_path: Path) -> None:
    graph, x = RUNS["convolution"]
    first, second = (quantize(graph, [x], options("sequential"), BATCH, runner=NumpyRunner()) for _ in range(2))
    assert first.files == second.files
    first.save(tmp_path)
    values = first.corrections["s0"]
    np.testing.assert_array_equal(mrt.load(tmp_path).corrections["s0"], values)
    line = f"{values.min():.6g} to {values.max():.6g} is added, a value for each of 4 output channels"
    assert line in explain(first, "s0")
    assert "is added" not in explain(quantize(graph, [x], options("none"), BATCH, runner=NumpyRunner()), "s0")
