"""What is simulated is what the integers do; what follows from it helps, and leaves alone what the user has said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import mrt
from mrt import workers
from mrt.backend import TvmRunner
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.selected_bias_correction import _selected
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.presets import with_preset
from mrt.quantization.quantizer import affine_target
from mrt.quantization.simulation.rounded_graph import measured
from mrt.quantization.simulation.simulation import Simulation, Trial, simulation_of
from mrt.symbol import Array, Graph, NumpyRunner, Symbol, TensorType
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.round_to_grid import RoundToGrid
from mrt.symbol.operators.selection import ArgMax
from mrt.symbol.operators.transform import Concat, Reshape, Transpose
from tests.quantization.corrected_networks import calibrated

RNG = np.random.default_rng(5)
WIDTH = 24
X = RNG.standard_normal((64, WIDTH)).astype(np.float32)
X[:, 0] *= 60  # what 8 bits spend their steps on


def network() -> Graph:
    """Three layers; what the first channel of the input brings is taken out again by weights near zero."""
    builder = GraphBuilder()
    value = builder.input("x", TensorType((1, WIDTH)))
    for layer in range(3):
        weight = RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32) / math.sqrt(WIDTH)
        if layer == 0:
            weight[:, 0] *= 0.01
        parameter = builder.parameter(f"w{layer}", weight)
        value = builder.apply(FullyConnected(num_hidden=WIDTH, no_bias=True), [value, parameter], f"s{layer}")
        if layer < 2:
            value = builder.apply(Relu(), [value], f"relu{layer}")
    return builder.graph([value])


GRAPH = network()


def error(model: mrt.QuantizedModel, x: Array, graph: Graph = GRAPH) -> float:
    """Of the integer outputs against the float ones, as a share of the energy of these."""
    wanted = np.concatenate([graph.evaluate({"x": row[None]})[0] for row in x]).astype(np.float64)
    rows = [model.graph.evaluate(model.quantize_inputs(row[None]))[0] for row in x]
    found = model.dequantize_outputs([np.concatenate(rows)])[0]
    return float(np.square(wanted - found).sum() / np.square(wanted).sum())


def quantized(x: Array = X, **options: object) -> mrt.QuantizedModel:
    return mrt.quantize(GRAPH, [x], QuantizationConfig.model_validate(options), runner=NumpyRunner())


def test_a_tensor_alone_makes_no_error_where_only_its_reader_is_flat() -> None:
    """What a table reads saturates where the 8 bits of its entries are alike: with exact entries that is no error."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, WIDTH)))
    gelu = builder.apply(LeakyReLU(act_type="gelu"), [x], "gelu")
    graph = builder.graph([square_layer(builder, gelu)])
    data = (3 * np.random.default_rng(1).standard_normal((64, WIDTH))).astype(np.float32)
    data[:, 0] *= 30
    samples = Samples([data], mrt.CalibrationConfig(), NumpyRunner())
    config = QuantizationConfig.model_validate({"overrides": {"x": {"activation": {"bits": 16}}}})
    simulation = simulation_of(graph, calibrated(graph, data), config, samples)
    (site,) = (site for site in simulation.sites if site.tensor.name == "x")
    assert simulation.plan[site.tensor].covers_part
    exact = Trial(frozenset())
    assert simulation.errors([Trial(frozenset({site.name}))], exact)[0] < 1e-6


@pytest.mark.parametrize("channels", [1, 3])
def test_rounding_to_a_grid_is_what_a_quantizer_does(channels: int) -> None:
    targets = [affine_target(-1.0 - c, 2.0 + c, 4, False) for c in range(channels)]
    rows = [(1 / t.scale, t.lo - t.zero_point, t.hi - t.zero_point, t.scale) for t in targets]
    data = RNG.standard_normal((2, 3, 5)).astype(np.float32) * 3
    builder = GraphBuilder()
    x = builder.input("x", TensorType(data.shape))
    grid = builder.input("grid", TensorType((4, channels)))
    graph = builder.graph([builder.apply(RoundToGrid(), [x, grid])])
    feeds = {"x": data, "grid": np.array(rows, np.float32).T.copy()}
    for runner in (NumpyRunner(), TvmRunner()):
        (found,) = runner.prepare(graph)(feeds)
        for channel in range(3):
            target = targets[channel % channels]
            integers = np.clip(np.rint(data[:, channel] / target.scale) + target.zero_point, target.lo, target.hi)
            wanted = target.scale * (integers - target.zero_point)
            np.testing.assert_allclose(found[:, channel], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"activation": {"quantizer": "affine"}}, {"weight": {"bits": 4}}])
def test_the_simulated_error_is_that_of_the_integers(options: dict[str, object]) -> None:
    config = QuantizationConfig.model_validate(options)
    observed = calibrated(GRAPH, X)
    simulation = simulated(observed, config, X)
    held_apart = X[-16:]
    model = quantized(preset="mrt", **options)
    assert simulation.error(Trial()) == pytest.approx(error(model, held_apart), rel=0.15)
    # Rounded nowhere, only the weights differ; finer grids come close to that.
    unrounded = simulation.error(Trial(frozenset()))
    assert unrounded < simulation.error(Trial())
    finest = simulation.error(Trial(finer={site.name: 8 for site in simulation.sites}))
    assert finest == pytest.approx(unrounded, rel=0.05)


def simulated(observed: mrt.Calibration, config: QuantizationConfig, x: Array) -> Simulation:
    return simulation_of(GRAPH, observed, config, Samples([x], mrt.CalibrationConfig(), NumpyRunner()))


def test_the_tensor_that_needs_more_bits_gets_them() -> None:
    model, plain = quantized(), quantized(activation={"bits": 8})
    assert any(note.startswith("x (null): 12 bits") for note in model.notes)
    fresh = RNG.standard_normal((32, WIDTH)).astype(np.float32)
    fresh[:, 0] *= 40
    assert error(model, fresh) < 0.05 * error(plain, fresh)
    assert not any("more bits" in note for note in plain.notes)


def test_a_sum_with_one_large_channel_gets_all_the_bits_of_a_word() -> None:
    """No product reads it, so that they cost nothing: what it is normalised by is nearly the large channel alone."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, WIDTH)))
    large = builder.parameter("large", np.float32([[200] + [0] * (WIDTH - 1)]))
    total = builder.apply(ElemwiseAdd(), [x, builder.apply(BroadcastAdd(), [square_layer(builder, x), large])], "sum")
    gamma = builder.parameter("gamma", np.float32([1e-3] + [1] * (WIDTH - 1)))
    beta = builder.parameter("beta", np.full(WIDTH, 0.2, np.float32))
    graph = builder.graph([builder.apply(LayerNorm(), [total, gamma, beta], "norm")])
    data = np.random.default_rng(2).standard_normal((64, WIDTH)).astype(np.float32)
    model = mrt.quantize(graph, [data], runner=NumpyRunner())
    assert any(note.startswith("sum (elemwise_add): 16 bits") for note in model.notes), model.notes


def square_layer(builder: GraphBuilder, x: Symbol) -> Symbol:
    weight = builder.parameter("w", np.eye(WIDTH, dtype=np.float32)[::-1].copy())
    return builder.apply(FullyConnected(num_hidden=WIDTH, no_bias=True), [x, weight], "layer")


def test_what_is_said_of_a_tensor_stays() -> None:
    model = quantized(overrides={"x": {"activation": {"bits": 6}}})
    assert (model.inputs[0].lo, model.inputs[0].hi) == (-31, 31) or model.inputs[0].hi - model.inputs[0].lo == 63


def test_choices_depend_on_neither_cores_nor_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {quantized().digest}
    monkeypatch.setattr(workers, "cores", lambda: 1)
    digests.add(quantized().digest)
    digests.add(mrt.quantize(GRAPH, iter([X[:3], X[3:40], X[40:]]), runner=NumpyRunner()).digest)
    assert len(digests) == 1


def test_corrections_that_do_harm_are_left_out() -> None:
    """The errors are those of a sum that every layer's correction moves: some of them away from zero."""
    moves = dict(zip("abcdefghijkl", (3.0, 1.0, -2.0, 5.0, 0.5, -4.0, 2.0, 1.0, -3.0, 6.0, -1.0, 2.0), strict=True))

    def errors(tried: Sequence[Mapping[str, Array]]) -> list[float]:
        return [(4.0 - sum(moves[name] for name in each)) ** 2 for each in tried]

    every = {name: np.ones(2) for name in moves}
    found = _selected(every, errors)
    assert set(found) < set(every) and errors([found])[0] < min(errors([{}, every]))
    assert _selected({}, errors) == {}


@pytest.mark.parametrize("seed", range(8))
def test_runs_of_layers_are_left_out_as_if_one_after_the_other(seed: int) -> None:
    """Errors are a quadratic form of what is corrected, so that one run makes up for another."""
    rng, names = np.random.default_rng(seed), [f"s{number}" for number in range(12)]
    mixed = rng.standard_normal((12, 12))
    every = {name: np.ones(1) for name in names}

    def errors(tried: Sequence[Mapping[str, Array]]) -> list[float]:
        left = [np.array([name not in each for name in names], float) - 0.5 for each in tried]
        return [1.0 + float(np.square(mixed @ each).sum()) for each in left]

    none, whole = errors([{}, every])
    found, least = ({}, none) if none * 1.01 < whole else (every, whole)
    for first in range(0, 12, 2):
        block = names[first : first + 2]
        tried = {name: value for name, value in found.items() if name not in block}
        tried = tried if len(tried) < len(found) else {**found, **{name: every[name] for name in block}}
        if errors([tried])[0] * 1.01 < least:
            found, least = tried, errors([tried])[0]
    assert _selected(every, errors) == found


def test_parts_of_an_output_are_measured_apart() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 2)))
    scores = builder.apply(Sigmoid(), [x], "scores")
    joined = builder.apply(Concat(dim=1), [x, scores], "joined")
    moved = builder.apply(Transpose(axes=(0, 2, 1)), [joined], "moved")
    plain = builder.apply(Reshape(shape=(1, 8)), [scores], "plain")
    best = builder.apply(ArgMax(axis=1), [scores], "best")
    assert [symbol.name for symbol in measured(builder.graph([moved, plain]))] == ["x", "scores", "plain"]
    assert [symbol.name for symbol in measured(builder.graph([best]))] == ["best"]


@pytest.mark.parametrize(
    ("given", "bits", "quantizer", "correction"),
    [
        ({}, "auto", "auto", "selected"),
        ({"activation": {"bits": 8}}, "none", "auto", "selected"),
        ({"activation": {"bits": 8}, "more_bits": "auto"}, "auto", "auto", "selected"),
        ({"activation": {"quantizer": "symmetric"}, "bias_correction": "none"}, "auto", "symmetric", "none"),
        ({"preset": "fast"}, "none", "auto", "fast"),
        ({"preset": "mrt"}, "none", "symmetric", "none"),
    ],
)
def test_presets_set_what_is_not_set(given: dict[str, object], bits: str, quantizer: str, correction: str) -> None:
    found = with_preset(QuantizationConfig.model_validate(given), GRAPH, has_data=True)
    assert (found.more_bits, found.activation.quantizer, found.bias_correction) == (bits, quantizer, correction)
    without = with_preset(QuantizationConfig(), GRAPH, has_data=False)
    assert (without.more_bits, without.activation.quantizer, without.bias_correction) == ("none", "symmetric", "none")


def test_a_tensor_whose_small_values_count_gets_twice_as_many() -> None:
    """Every other sample is a thousandth as loud, and no output is louder."""
    builder = GraphBuilder()
    weight = builder.parameter("w", np.eye(WIDTH, dtype=np.float32))
    same = builder.apply(
        FullyConnected(num_hidden=WIDTH, no_bias=True), [builder.input("x", TensorType((1, WIDTH))), weight], "same"
    )
    graph = builder.graph([builder.apply(Clip(a_min=-1e-3, a_max=1e-3), [same], "shown")])
    data = (RNG.standard_normal((64, WIDTH)) * np.where(np.arange(64) % 2, 1.0, 1e-3)[:, None]).astype(np.float32)
    model = mrt.quantize(graph, [data], runner=NumpyRunner())
    assert any(note.startswith("x (null): 16 bits") for note in model.notes)
    assert error(model, data, graph) < 1e-3
