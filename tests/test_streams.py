"""Streams of compiled modules: calls one after the other, and what they keep."""

from __future__ import annotations

import numpy as np
import pytest

import mrt
from mrt.errors import DataError
from mrt.model import QuantizedModel
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import NumpyRunner
from tests.causal_network import CHANNELS, SIGNAL, TAPS, causal_file, convolved, sqnr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModel:
    path = causal_file(tmp_path_factory.mktemp("net") / "net.onnx")
    graph = mrt.load_model(path, states={"past": "kept"})
    return mrt.quantize(graph, [SIGNAL[:100], SIGNAL[100:200]], QuantizationConfig(preset="fast"), runner=NumpyRunner())


@pytest.fixture(scope="module")
def module(model: QuantizedModel) -> mrt.Module:
    return model.compile()


def test_a_thousand_steps(model: QuantizedModel, module: mrt.Module) -> None:
    """The compiled integers are the evaluated ones at each step, the state is handed on bit for bit, nothing drifts."""
    stream, integers = module.stream(integer=True), model.inputs[0].quantize(SIGNAL)
    held, found = [], []
    for step in range(len(SIGNAL)):
        held.append(stream.states["past"])
        found.append(stream(integers[step : step + 1]))
    held.append(stream.states["past"])
    at_once = model.rebatched(len(SIGNAL)).graph
    outputs, following = at_once.evaluate({"x": integers, "past": np.concatenate(held[:-1])})
    np.testing.assert_array_equal(np.concatenate(found), outputs)
    np.testing.assert_array_equal(np.concatenate(held[1:]), following)
    assert held[0].dtype == np.int16 and not held[0].any()
    real, wanted = model.outputs[0].dequantize(outputs), convolved(SIGNAL)
    for steps in (10, 100, 1000):
        assert sqnr(wanted[:steps], real[:steps]) > 36


def test_real_streams_hold_the_integers(model: QuantizedModel, module: mrt.Module) -> None:
    integer, real, meant = module.stream(integer=True), module.stream(), model.stream()
    for x in SIGNAL[:20, None]:
        found = real(x)
        np.testing.assert_array_equal(found, model.outputs[0].dequantize(integer(model.inputs[0].quantize(x))))
        np.testing.assert_array_equal(found, meant({"x": x}))
        np.testing.assert_array_equal(model.inputs[1].quantize(real.states["past"]), integer.states["past"])


def test_streams_do_not_disturb_each_other(module: mrt.Module) -> None:
    """Two of them by turns, and two samples of one, give what each gives alone."""
    alone = [module.stream().along(part)[0] for part in (SIGNAL[:8], SIGNAL[8:16])]
    first, second, both = module.stream(), module.stream(), module.stream()
    for step in range(8):
        mine, yours = SIGNAL[step : step + 1], SIGNAL[8 + step : 9 + step]
        np.testing.assert_array_equal(first(mine), alone[0][step : step + 1])
        np.testing.assert_array_equal(second(yours), alone[1][step : step + 1])
        np.testing.assert_array_equal(both(np.concatenate([mine, yours])), [alone[0][step], alone[1][step]])
    with pytest.raises(DataError, match=r"holds the states of 2 samples, 1 are given; .* reset\(\)"):
        both(SIGNAL[:1])
    both.reset()
    np.testing.assert_array_equal(both(SIGNAL[:1]), alone[0][:1])


@pytest.mark.parametrize("integer", [False, True])
def test_what_a_stream_gave_stays(model: QuantizedModel, module: mrt.Module, integer: bool) -> None:
    """Outputs and states that were given are no memory of the stream, whatever it or its module do next."""
    stream = module.stream(integer=integer)
    x = model.inputs[0].quantize(SIGNAL) if integer else SIGNAL
    given = []
    for step in range(6):
        y, held = stream(x[step : step + 1]), stream.states["past"]
        given.append((y, held, y.copy(), held.copy()))
        module({"x": SIGNAL[-1:], "past": np.ones((1, CHANNELS, TAPS - 1), np.float32)})
    for y, held, *before in given:
        np.testing.assert_array_equal(y, before[0])
        np.testing.assert_array_equal(held, before[1])
    np.testing.assert_array_equal(
        np.concatenate([y for y, *_ in given]), module.stream(integer=integer).along(x[:6])[0]
    )


def test_a_stream_goes_on_after_its_module_was_closed(model: QuantizedModel) -> None:
    module = model.compile()
    stream, whole = module.stream(), module.stream().along(SIGNAL[:6])[0]
    found = []
    for step in range(6):
        found.append(stream(SIGNAL[step : step + 1]))
        module.close()
    np.testing.assert_array_equal(np.concatenate(found), whole)


def test_a_call_takes_and_gives_states_as_real_values(model: QuantizedModel, module: mrt.Module) -> None:
    """Beyond the range they saturate, as all real values do."""
    past = np.linspace(-0.5, 0.5, CHANNELS * (TAPS - 1), dtype=np.float32).reshape(1, CHANNELS, -1)
    past[0, 0, 0] = 1e6
    y, following = module({"x": SIGNAL[:1], "past": past})
    integers = model.quantize_inputs({"x": SIGNAL[:1], "past": past})
    wanted = model.dequantize_outputs(model.rebatched(1).graph.evaluate(integers))
    np.testing.assert_array_equal(y, wanted[0])
    np.testing.assert_array_equal(following, wanted[1])
    assert integers["past"].max() == model.inputs[1].hi


def test_what_a_stream_refuses_leaves_its_states(module: mrt.Module) -> None:
    stream = module.stream()
    stream(SIGNAL[:1])
    before = stream.states["past"]
    with pytest.raises(DataError, match="the stream keeps past itself"):
        stream({"x": SIGNAL[:1], "past": before})
    with pytest.raises(DataError, match=r"inputs \['y'\] are given, \['x'\] are needed"):
        stream({"y": SIGNAL[:1]})
    with pytest.raises(DataError, match="x has shape"):
        stream(SIGNAL[:1, :2])
    np.testing.assert_array_equal(stream.states["past"], before)
