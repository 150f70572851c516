"""What a rounding is said to cost is what it costs: the float network run with that one thing rounded, by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import mrt
from mrt.batches import Batches
from mrt.errors import ConfigError, MRTError
from mrt.preparation import PreparationConfig, Prepared
from mrt.progress import silent
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.presets import with_preset
from mrt.quantization.simulation.rounded_graph import rounded_graph
from mrt.quantization.simulation.sensitivity import Loss, Sensitivity, sensitivity_of
from mrt.quantization.simulation.simulation import Simulation, Trial, mean_error, planned_weights
from mrt.report.sensitivity import overview, plain_sensitivity, rich_sensitivity, sensitivity_lines
from mrt.steps import sensitivity
from mrt.symbol import Array, Graph, NumpyRunner, TensorType
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from mrt.work import Settings, Work
from tests.quantization.corrected_networks import SINGLE, calibrated, data_for

RNG = np.random.default_rng(17)
WIDTH = 12
X = RNG.standard_normal((64, WIDTH)).astype(np.float32)
X[:, 0] *= 30
HELD_APART = X[-16:]
CALIBRATION = mrt.CalibrationConfig()


def network() -> Graph:
    """x → first → relu → left and right: two outputs, the second one small."""
    builder = GraphBuilder()

    def layer(source, name: str, size: float = 1.0):  # type: ignore[no-untyped-def]
        weight = (size * RNG.standard_normal((WIDTH, WIDTH)) / math.sqrt(WIDTH)).astype(np.float32)
        if name == "first":
            weight[:, 0] *= 0.01
        parameter = builder.parameter(f"{name}_weight", weight)
        return builder.apply(FullyConnected(num_hidden=WIDTH, no_bias=True), [source, parameter], name)

    x = builder.input("x", TensorType((1, WIDTH)))
    relu = builder.apply(Relu(), [layer(x, "first")], "relu")
    return builder.graph([layer(relu, "left"), layer(relu, "right", 0.01)])


GRAPH = network()
CONFIG = QuantizationConfig.model_validate(
    {"weight": {"bits": 5}, "overrides": {"left": {"weight": {"bits": 3}}, "x": {"activation": {"bits": 6}}}}
)
OBSERVED = calibrated(GRAPH, X)
SAMPLES = Samples([X], CALIBRATION, NumpyRunner())
PLANNED, WEIGHTS = planned_weights(GRAPH, OBSERVED, CONFIG, SAMPLES)
CORRECTIONS = {"left": np.linspace(-0.5, 0.5, WIDTH)}
SIMULATION = Simulation(PLANNED.plan, WEIGHTS, SAMPLES, has_gates=True)
FOUND = sensitivity_of(SIMULATION, CORRECTIONS, silent())


def loss(name: str, what: str, found: Sensitivity = FOUND) -> Loss:
    (only,) = (each for each in found.losses if (each.name, each.what) == (name, what))
    return only


def outputs(graph: Graph, x: Array) -> list[Array]:
    rows = [graph.evaluate({"x": row[None]}) for row in x]
    return [np.concatenate(each).astype(np.float64) for each in zip(*rows, strict=True)]


def errors(graph: Graph, x: Array = HELD_APART, added: Mapping[int, Array] | None = None) -> list[float]:
    """Of each output of a changed network, or of given samples, against those of the network on what it held apart."""
    found = outputs(graph, x)
    for output, correction in (added or {}).items():
        found[output] = found[output] + correction
    pairs = zip(outputs(GRAPH, HELD_APART), found, strict=True)
    return [float(np.square(wanted - value).sum() / np.square(wanted).sum()) for wanted, value in pairs]


def with_weight(layer: str) -> Graph:
    """The float network with one parameter replaced by what its integers stand for."""
    rounded = WEIGHTS[layer].astype(np.float32)
    return Graph(GRAPH.inputs, GRAPH.outputs, {**GRAPH.parameters, f"{layer}_weight": rounded})


def test_a_weight_alone_is_the_network_with_that_parameter_replaced() -> None:
    first, right = loss("first", "weight"), loss("right", "weight")
    np.testing.assert_allclose(first.alone, errors(with_weight("first")), rtol=1e-4)
    np.testing.assert_allclose(right.alone, errors(with_weight("right")), rtol=1e-4, atol=1e-12)
    assert right.alone[0] < 1e-12 < 1e-5 < right.alone[1]
    assert first.so_far[0] > first.alone[0], "what it reads is rounded too"


def test_a_correction_counts_with_its_layer() -> None:
    corrected = errors(with_weight("left"), added={0: CORRECTIONS["left"]})
    np.testing.assert_allclose(loss("left", "weight").alone, corrected, rtol=1e-4, atol=1e-12)
    assert corrected[0] > 1.5 * errors(with_weight("left"))[0]


def test_a_tensor_alone_is_the_network_on_rounded_data() -> None:
    options = CONFIG.model_copy(update={"preset": "mrt"})
    model = mrt.quantize(GRAPH, [X], options, CALIBRATION, runner=NumpyRunner())
    given = model.inputs[0]
    (integers,) = (np.concatenate([model.quantize_inputs(row[None])["x"] for row in HELD_APART]),)
    real = (given.scale * (integers.astype(np.float64) - given.zero_point)).astype(np.float32)
    np.testing.assert_allclose(loss("x", "tensor").alone, errors(GRAPH, real), rtol=1e-3)


def test_shares_and_cumulative_errors_add_up_to_the_whole() -> None:
    shares = [each.share for each in FOUND.losses]
    assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True)
    total = sum(mean_error(each.alone) for each in FOUND.losses)
    assert FOUND.losses[0].share == pytest.approx(mean_error(FOUND.losses[0].alone) / total)
    np.testing.assert_array_equal(loss("x", "tensor").so_far, loss("x", "tensor").alone)
    np.testing.assert_array_equal(loss("right", "output").so_far, FOUND.whole)
    plain = Simulation(PLANNED.plan, WEIGHTS, SAMPLES)
    np.testing.assert_allclose(FOUND.whole, plain.output_errors([Trial(corrections=CORRECTIONS)])[0], rtol=1e-3)
    assert plain.error(Trial(corrections=CORRECTIONS)) == pytest.approx(float(FOUND.whole.mean()), rel=1e-3)
    assert FOUND.outputs == ("left", "right") and FOUND.samples == len(HELD_APART)


def test_bits_are_those_that_were_asked_for() -> None:
    assert {(each.name, each.what): each.bits for each in FOUND.losses} == {
        ("x", "tensor"): 6,
        ("first", "weight"): 5,
        ("first", "tensor"): 8,
        ("left", "weight"): 3,
        ("left", "output"): 16,
        ("right", "weight"): 5,
        ("right", "output"): 16,
    }


@pytest.mark.parametrize("name", SINGLE)
def test_gates_turn_the_rounding_of_a_weight_on_and_off(name: str) -> None:
    """For every reduction, since each must be linear in its weight."""
    graph = SINGLE[name]
    x = data_for(graph)
    config = QuantizationConfig.model_validate({"weight": {"bits": 3}})
    planned, weights = planned_weights(graph, calibrated(graph, x), config, Samples([x], CALIBRATION, NumpyRunner()))
    rounded = rounded_graph(planned.plan, 1, weights, has_gates=True)
    whole = rounded.part(rounded.graph.inputs, rounded.graph.outputs)
    ((layer, gate),) = rounded.gates.items()
    parameter = graph.by_name[layer].inputs[1].name
    replaced = {**graph.parameters, parameter: weights[layer].astype(np.float32)}
    feeds = {site.name: site.unrounded(planned.plan) for site in rounded.sites}
    feeds |= {each.name: np.zeros(each.shape, np.float32) for each in rounded.corrected.values()}
    feeds |= {rounded.graph.inputs[0].name: x[:1]}
    wanted = {}
    for value, parameters in ((0, graph.parameters), (1, replaced)):
        (found,) = whole.evaluate({**feeds, gate.name: np.full(gate.shape, value, np.float32)})
        (wanted[value],) = Graph(graph.inputs, graph.outputs, parameters).evaluate({graph.inputs[0].name: x[:1]})
        np.testing.assert_allclose(found, wanted[value], rtol=1e-4, atol=1e-4)
    assert np.abs(wanted[0] - wanted[1]).max() > 1e-2


def test_without_gates_no_trial_says_which_weights_are_rounded() -> None:
    simulation = Simulation(PLANNED.plan, WEIGHTS, SAMPLES)
    with pytest.raises(ValueError, match="no gates"):
        simulation.error(Trial(weights=frozenset()))


def work(config: QuantizationConfig, has_data: bool = True) -> Work:
    settings = Settings(PreparationConfig(), CALIBRATION, with_preset(config, GRAPH, has_data))
    data = Batches([X], GRAPH.inputs, {})
    made = Work(GRAPH, settings, data=(lambda graph: data) if has_data else None, runner=NumpyRunner())
    return replace(made, prepared=Prepared(GRAPH, None, (), ()), observed=OBSERVED)


def test_it_is_of_what_would_be_quantized() -> None:
    """With the bits that the preset chooses, which are those of the model."""
    found = sensitivity(work(QuantizationConfig()))
    model = mrt.quantize(GRAPH, [X], runner=NumpyRunner())
    assert loss("x", "tensor", found).bits == 12
    assert model.inputs[0].hi.bit_length() == 11
    plain = sensitivity(work(QuantizationConfig(preset="mrt")))
    assert loss("x", "tensor", plain).bits == 8
    assert mean_error(found.whole) < mean_error(plain.whole)


def test_without_data_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.calibration is missing"):
        sensitivity(work(QuantizationConfig(), has_data=False))


def test_the_table_shows_each_output_and_what_lacks_signal() -> None:
    lines = sensitivity_lines(FOUND)
    assert lines[0][-2:] == ("alone at left", "alone at right") and len(lines) == 1 + len(FOUND.losses)
    left = loss("left", "weight")
    decibels = [f"{-10 * math.log10(error):.1f} dB" for error in (left.alone.mean(), left.so_far.mean(), left.alone[0])]
    share = f"{100 * left.share:.1f} %"
    assert ("left", "FullyConnected", "weight", "3", share, *decibels, "no error") in lines
    text = plain_sensitivity(lines)
    assert len({len(line) for line in text.splitlines()}) == 1
    assert rich_sensitivity(lines).row_count == len(FOUND.losses)
    assert {line[0] for line in sensitivity_lines(FOUND, "left")[1:]} == {"left"}
    with pytest.raises(MRTError, match="the nearest are left"):
        sensitivity_lines(FOUND, "leftt")
    silence = replace(left, alone=np.array([math.nan, 0.0]), so_far=np.array([math.nan, math.nan]))
    without = replace(FOUND, losses=(silence,), whole=np.array([math.nan, 0.01]))
    assert sensitivity_lines(without)[1][-2:] == ("-", "no error")
    assert "all rounded: 20.0 dB (left -, right 20.0 dB), simulated on 16" in overview(without)
