"""Outputs reach beyond what calibration saw, where their bits are plenty, as far as they can."""

from __future__ import annotations

import numpy as np
import pytest

import mrt
from mrt.calibration import Range
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.final_ranges import final_ranges
from mrt.quantization.presets import with_preset
from mrt.symbol import Array, Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Concat, Reshape

WEIGHT = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
QUIET = np.random.default_rng(1).normal(size=(64, 6)).astype(np.float32)


def network(sigmoid: bool, joined: bool = False) -> Graph:
    """A layer whose input has 16 bits, so that louder samples than those of calibration need no more of them."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 6)))
    y = builder.apply(FullyConnected(num_hidden=4, no_bias=True), [x, builder.parameter("w", WEIGHT)], "layer")
    y = builder.apply(Sigmoid(), [y], "shown") if sigmoid else y
    y = builder.apply(Concat(dim=1), [y, y], "joined") if joined else y
    return builder.graph([builder.apply(Reshape(shape=(1, -1)), [y], "y")])


def worst(graph: Graph, data: Array, **options: object) -> float:
    """The largest error on samples whose outputs reach further than those that calibrated; inputs have the range."""
    inputs = {"x": {"scale": 1 / 1024, "dtype": "int16"}}
    config = QuantizationConfig.model_validate({"inputs": inputs, **options})
    model = mrt.quantize(graph, [QUIET], config, runner=NumpyRunner())
    found = [model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(row[None])))[0] for row in data]
    wanted = [graph.evaluate({"x": row[None]})[0] for row in data]
    return float(np.abs(np.concatenate(found) - np.concatenate(wanted)).max())


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("preset", ["best", "fast"])
def test_louder_samples_do_not_saturate_outputs(preset: str, sigmoid: bool, joined: bool) -> None:
    graph, loud = network(sigmoid, joined), 3 * QUIET
    reach = max(float(np.abs(graph.evaluate({"x": row[None]})[0]).max()) for row in QUIET)
    close = worst(graph, loud, preset=preset)
    assert close < 0.02 * reach
    if not sigmoid:
        assert worst(graph, loud, preset=preset, output={"room": 1.0}) > reach
    assert worst(graph, QUIET, preset=preset) < 0.02 * reach


@pytest.mark.parametrize(("seen", "reach"), [(0.3, 1.0), (0.9, 1.0), (0.01, 0.16)])
def test_a_bounded_function_reaches_all_that_it_can_give(seen: float, reach: float) -> None:
    graph = network(sigmoid=True)
    ranges = {name: Range(0.0, seen) for name in ("shown", "y")} | {"layer": Range(-6.0, -2.0)}
    found = final_ranges(graph, ranges, QuantizationConfig.model_validate({"output": {"room": 4.0}}))
    assert (found["shown"].lo, found["shown"].hi) == (0.0, pytest.approx(reach))
    assert (found["layer"].lo, found["layer"].hi) == (-24.0, 24.0)
    assert final_ranges(graph, ranges, QuantizationConfig()) == {}


def test_bits_that_are_asked_of_outputs_hold_what_was_calibrated() -> None:
    assert with_preset(QuantizationConfig(), network(True), has_data=True).output.room == 4.0
    asked = QuantizationConfig.model_validate({"output": {"bits": 8}})
    assert with_preset(asked, network(True), has_data=True).output.room == 1.0
    assert with_preset(QuantizationConfig(preset="mrt"), network(True), has_data=True).output.room == 1.0


def test_outputs_get_their_room_once() -> None:
    graph = network(sigmoid=False)
    reach = max(float(np.abs(graph.evaluate({"x": row[None]})[0]).max()) for row in QUIET)
    (output,) = mrt.quantize(graph, [QUIET], QuantizationConfig(preset="fast"), runner=NumpyRunner()).outputs
    assert float(output.scale) == pytest.approx(4.0 * reach / 32767, rel=1e-3)


def test_what_has_the_bits_of_a_tensor_read_elsewhere_keeps_its_range() -> None:
    """Joined states of a recurrent layer, which the next step reads, would lose bits to the room."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 6)))
    first = builder.apply(FullyConnected(num_hidden=4, no_bias=True), [x, builder.parameter("w", WEIGHT)], "first")
    again = builder.parameter("again", np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32))
    second = builder.apply(FullyConnected(num_hidden=4, no_bias=True), [first, again], "second")
    graph = builder.graph([builder.apply(Concat(dim=1), [first, second], "joined")])
    ranges = {name: Range(-1.0, 1.0) for name in ("first", "second", "joined")}
    assert final_ranges(graph, ranges, QuantizationConfig.model_validate({"output": {"room": 4.0}})) == {}
