"""States: what a network keeps between calls, from its reading to the compiled stream and to exported files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mrt
from mrt.certificate import CERTIFICATE_FILE
from mrt.certificate.verify import GRAPH_FILE, QUANTIZATION_FILE
from mrt.errors import ConfigError, DataError, GraphError, QuantizationError, VerificationError
from mrt.model import QuantizedModel
from mrt.preparation import PreparationConfig
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.state import Assign
from mrt.symbol.states import states_of
from mrt.symbol.stream import stream_of
from tests.pipeline.runs import run

TAPS, CHANNELS, STEP = 4, 3, 2
"""Of the causal convolution below: it takes STEP new columns at a time and keeps the TAPS − 1 before them."""
WEIGHT = np.random.default_rng(0).normal(0, 0.5, (5, CHANNELS, TAPS)).astype(np.float32)
SIGNAL = np.random.default_rng(1).uniform(-1, 1, (1000, CHANNELS, STEP)).astype(np.float32)


def causal_file(path: Path) -> Path:
    """An ONNX file whose kept columns are the input `past` and the output `kept`."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["joined"], axis=2),
        helper.make_node("Conv", ["joined", "w"], ["y"]),
        helper.make_node("Slice", ["joined", "begin", "end", "axis"], ["kept"]),
    ]
    constants = {"w": WEIGHT, "begin": np.array([STEP]), "end": np.array([STEP + TAPS - 1]), "axis": np.array([2])}
    inputs = {"x": ("n", CHANNELS, STEP), "past": ("n", CHANNELS, TAPS - 1)}
    return saved(path, nodes, inputs, ["kept", "y"], constants)


def saved(
    path: Path, nodes: list[Any], inputs: Mapping[str, Any], outputs: list[str], constants: Mapping[str, Any]
) -> Path:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def convolved(signal: np.ndarray) -> np.ndarray:
    """The causal convolution of the whole signal at once in float64, cut into the steps of the stream."""
    steps = len(signal)
    columns = signal.astype(np.float64).transpose(1, 0, 2).reshape(CHANNELS, -1)
    padded = np.concatenate([np.zeros((CHANNELS, TAPS - 1)), columns], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, TAPS, axis=1)
    return np.einsum("ock,ctk->ot", WEIGHT, windows).reshape(5, steps, STEP).transpose(1, 0, 2)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = causal_file(tmp_path_factory.mktemp("net") / "net.onnx")
    return mrt.load_model(path, states={"past": "kept"})


@pytest.fixture(scope="module")
def model(graph: Graph) -> QuantizedModel:
    return mrt.quantize(graph, [SIGNAL[:100], SIGNAL[100:200]], QuantizationConfig(preset="fast"), runner=NumpyRunner())


@pytest.fixture(scope="module")
def module(model: QuantizedModel) -> mrt.Module:
    return model.compile()


def sqnr(reference: np.ndarray, measured: np.ndarray) -> float:
    return float(10 * np.log10(np.square(reference).sum() / np.square(reference - measured).sum()))


def test_the_float_stream_is_the_convolution_of_the_whole_signal(graph: Graph) -> None:
    (state,) = states_of(graph)
    assert (state.name, state.output.name, state.place) == ("past", "past_next", 1)
    (found,) = stream_of(graph, NumpyRunner()).along(SIGNAL[:20])
    np.testing.assert_allclose(found, convolved(SIGNAL[:20]), atol=1e-5)


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


def test_a_module_without_states_has_no_stream() -> None:
    builder = GraphBuilder()
    plain = builder.graph([builder.apply(Relu(), [builder.input("x", TensorType((1, 3)))], "y")])
    with pytest.raises(DataError, match="keeps nothing between calls"):
        mrt.quantize(plain, np.ones((4, 3), np.float32), runner=NumpyRunner()).stream()


def test_initial_values_and_a_state_without_the_batch(tmp_path: Path) -> None:
    """h of [2, 1, 3], as recurrent layers have it: the batch of 1 comes in front. Both rows decay from their start."""
    start = np.array([[[1.0, 2.0, -1.0]], [[0.5, 0.0, 3.0]]], np.float32)
    nodes = [
        helper.make_node("Mul", ["h", "decay"], ["next"]),
        helper.make_node("ReduceSum", ["next", "first"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    constants = {"decay": np.array([[[0.75]], [[0.5]]], np.float32), "first": np.array([0])}
    inputs = {"x": ("n", 3), "h": (2, "m", 3)}
    path = saved(tmp_path / "net.onnx", nodes, inputs, ["y", "next"], constants)
    shapes, pairs = {"x": (1, 3), "h": (2, 1, 3)}, {"h": "next"}
    read = mrt.load_model(path, shapes=shapes, states=pairs, initial={"h": start})
    assert [(s.name, s.shape) for s in read.inputs] == [("x", (1, 3)), ("h", (1, 2, 1, 3))]
    made = mrt.quantize(read, np.zeros((6, 3), np.float32), runner=NumpyRunner())
    powers = np.arange(1, 7)[:, None]
    wanted = start[0] * 0.75**powers + start[1] * 0.5**powers
    stream, step = made.stream(), made.inputs[1].scale
    np.testing.assert_allclose(stream.states["h"][0], start, atol=step)
    (found,) = stream.along(np.zeros((6, 3), np.float32))
    np.testing.assert_allclose(found, wanted, atol=0.01)
    np.testing.assert_allclose(
        stream.states["h"][0, :, 0], [start[0, 0] * 0.75**6, start[1, 0] * 0.5**6], atol=3 * step
    )
    moved = mrt.load_model(path, shapes=shapes, states=pairs, initial={"h": 1}, batch_axes={"h": 1, "next": 1})
    assert [(s.name, s.shape) for s in moved.inputs] == [("x", (1, 3)), ("h", (1, 2, 3))]
    (ones,) = stream_of(moved, NumpyRunner()).along(np.zeros((6, 3), np.float32))
    np.testing.assert_allclose(ones[:, 0], 0.75 ** powers[:, 0] + 0.5 ** powers[:, 0], rtol=1e-6)
    with pytest.raises(GraphError, match="read the model with batch 1"):
        mrt.load_model(path, shapes={"x": (3, 3), "h": (2, 1, 3)}, states=pairs)


@pytest.mark.parametrize(
    ("states", "initial", "reason"),
    [
        ({"pats": "kept"}, {}, "state pats: no input is called so; the inputs are x, past"),
        ({"past": "kpet"}, {}, "state past: no output is called 'kpet'; the outputs are kept, y"),
        ({"past": "y"}, {}, r"past is float32\[1, 3, 3\], and the output y, .*, float32\[1, 5, 2\]; both must"),
        ({"past": "kept"}, {"x": 0}, "initial values are given for x, which no state is called"),
        ({"past": "kept"}, {"past": [1, 2]}, r"state past: the initial value is \[1, 2\]; numbers that broadcast to"),
        ({"past": "kept"}, {"past": np.nan}, "state past: the initial value holds NaN or infinity"),
        ({"past": "kept", "x": "y"}, {}, "state x is .*, and the output y"),
        ("past", {}, "states is 'past'; a mapping by the names of inputs"),
    ],
)
def test_a_wrong_pair_is_one_error(tmp_path: Path, states: Any, initial: Any, reason: str) -> None:
    read = mrt.load_model(causal_file(tmp_path / "net.onnx"))
    with pytest.raises(GraphError, match=reason):
        mrt.with_states(read, states, initial)


def test_pairs_that_no_network_has(graph: Graph) -> None:
    with pytest.raises(GraphError, match="an input is a state twice"):
        mrt.with_states(graph, {"past": "past_next"})
    builder = GraphBuilder()
    ids = builder.input("ids", TensorType((1, 3), "int32"))
    counted = builder.graph([builder.apply(Relu(), [ids], "next"), builder.input("x", TensorType((1, 3)))])
    with pytest.raises(GraphError, match=r"state ids is int32\[1, 3\]; real values alone are kept"):
        mrt.with_states(counted, {"ids": "next"})
    builder = GraphBuilder()
    alone = builder.graph([builder.apply(Relu(), [builder.input("h", TensorType((1, 3)))], "next")])
    with pytest.raises(GraphError, match="every input is a state"):
        mrt.with_states(alone, {"h": "next"})


def test_a_state_behind_the_cut_is_refused(graph: Graph) -> None:
    with pytest.raises(GraphError, match="what the states past hold next is computed behind the cut"):
        mrt.quantize(graph, SIGNAL, preparation=PreparationConfig(split=("kept",)))


def test_states_that_data_give_are_taken(graph: Graph, model: QuantizedModel) -> None:
    """Recorded states calibrate as the float network would fill them in."""
    completed = stream_of(graph, NumpyRunner()).completed(SIGNAL[:200])
    again = mrt.quantize(graph, completed, QuantizationConfig(preset="fast"), runner=NumpyRunner())
    assert again.digest == model.digest
    with pytest.raises(DataError, match="inputs"):
        mrt.quantize(graph, {"past": completed["past"]}, runner=NumpyRunner())


def test_the_bits_of_a_state_are_those_of_its_override(graph: Graph) -> None:
    options = {"preset": "fast", "overrides": {"past": {"activation": {"bits": 12}}}}
    made = mrt.quantize(graph, SIGNAL[:50], QuantizationConfig(**options), runner=NumpyRunner())
    assert (made.inputs[1].lo, made.inputs[1].hi) == (-2047, 2047)
    declared = {"past": {"dtype": "int8", "scale": 0.01}}
    with pytest.raises(QuantizationError, match=r"quantize\.inputs\.past, .* declares the integers of a state"):
        mrt.quantize(graph, SIGNAL[:50], QuantizationConfig(preset="fast", inputs=declared), runner=NumpyRunner())


def test_a_network_that_brings_quantizers_says_what_its_states_are(tmp_path: Path) -> None:
    """No data, and no rounding but the network's own: what it keeps are the int8 that it quantizes to."""

    def rounded(name: str, scale: str) -> list[Any]:
        quantizer = helper.make_node("QuantizeLinear", [name, scale, "zero"], [f"{name}_q"])
        return [quantizer, helper.make_node("DequantizeLinear", [f"{name}_q", scale, "zero"], [f"{name}_real"])]

    nodes = [
        *rounded("x", "fine"),
        helper.make_node("Concat", ["past", "x_real"], ["joined"], axis=2),
        *rounded("joined", "fine"),
        helper.make_node("DequantizeLinear", ["w", "fine"], ["w_real"]),
        helper.make_node("Conv", ["joined_real", "w_real"], ["conv"]),
        *rounded("conv", "coarse"),
        helper.make_node("Slice", ["joined_real", "begin", "end", "axis"], ["kept"]),
    ]
    constants = {"fine": np.float32(2**-7), "coarse": np.float32(2**-4), "zero": np.int8(0)}
    constants |= {"w": np.random.default_rng(3).integers(-127, 128, WEIGHT.shape).astype(np.int8)}
    constants |= {"begin": np.array([STEP]), "end": np.array([STEP + TAPS - 1]), "axis": np.array([2])}
    inputs = {"x": (1, CHANNELS, STEP), "past": (1, CHANNELS, TAPS - 1)}
    path = saved(tmp_path / "net.onnx", nodes, inputs, ["conv_real", "kept"], constants)
    read = mrt.load_model(path, states={"past": "kept"})
    made = mrt.quantize(read, runner=NumpyRunner())
    assert [(entry.dtype, entry.scale) for entry in (made.inputs[1], made.outputs[1])] == [("int8", 2**-7)] * 2
    (found,), (wanted,) = (each.along(SIGNAL[:50]) for each in (made.stream(), stream_of(read, NumpyRunner())))
    np.testing.assert_array_equal(found, wanted)


# What is saved and proven


def test_the_saved_model_names_its_states(model: QuantizedModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    assert json.loads((tmp_path / QUANTIZATION_FILE).read_text())["states"] == {"past": "past_next"}
    read = mrt.load(tmp_path)
    assert read.states == model.states and read.digest == model.digest
    rule = read.certificate.tensors["past"].rule
    assert rule == "range of a state, by induction"


def tampered(folder: Path, change: Any, file: str) -> None:
    """Changes a file's JSON, and has the certificate vouch for it."""
    data = json.loads((folder / file).read_text())
    change(data)
    (folder / file).write_text(json.dumps(data))
    certificate = json.loads((folder / CERTIFICATE_FILE).read_text())
    certificate["files"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / CERTIFICATE_FILE).write_text(json.dumps(certificate))


def narrowed(data: Any) -> None:
    data["inputs"][1] |= {"lo": -100, "hi": 100}


def positive(data: Any) -> None:
    data["inputs"][1]["lo"] = 1


def rescaled(data: Any) -> None:
    data["inputs"][1]["scale"] *= 2


def unnamed(data: Any) -> None:
    del data["states"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (narrowed, r"state past: its next value lies in \[.*\], and the state is held to \[-100, 100\]"),
        (positive, r"state past: its initial value lies in \[0, 0\], and the state is held to \[1, "),
        (rescaled, "state past has scale .*, and past_next, which it holds next"),
        (unnamed, r"states the states \{\}, the graph has \{'past': 'past_next'\}"),
    ],
)
def test_what_no_stream_keeps_is_not_verified(model: QuantizedModel, tmp_path: Path, change: Any, reason: str) -> None:
    model.save(tmp_path)
    tampered(tmp_path, change, QUANTIZATION_FILE)
    with pytest.raises(VerificationError, match=reason):
        mrt.verify(tmp_path)


def test_a_pair_in_the_graph_is_checked(model: QuantizedModel) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3), "int8"))
    start = builder.parameter("start", np.zeros((1, 1), np.int8))
    held = builder.apply(Relu(), [x], "held")
    graph = builder.graph([builder.apply(Assign(), [x, held, start], "next")])
    with pytest.raises(GraphError, match=r"next \(assign\) sets the state held: it must be an input"):
        states_of(graph)
    assert GRAPH_FILE in model.files


# Where else it goes


def test_exported_networks_take_and_give_the_states(model: QuantizedModel, tmp_path: Path) -> None:
    model.to_onnx(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    described = session.get_modelmeta().custom_metadata_map["mrt.states"]
    assert json.loads(described) == [{"input": "past", "output": "past_next", "initial": 0}]
    stream, past = model.stream(integer=True), np.zeros((1, CHANNELS, TAPS - 1), np.int16)
    for x in SIGNAL[:20, None]:
        xq = model.inputs[0].quantize(x)
        found, past = session.run(None, {"x": xq, "past": past})
        np.testing.assert_array_equal(found, stream(xq))
    model.to_relay(tmp_path / "net.relay")
    assert f"// mrt.states {described}" in (tmp_path / "net.relay").read_text()
    model.to_mxnet(tmp_path / "net")
    attributes = json.loads((tmp_path / "net-symbol.json").read_text())["attrs"]
    (state,), outputs = (json.loads(attributes[f"mrt.{key}"][1]) for key in ("states", "outputs"))
    assert (state["input"], state["output"]) == ("past", outputs[1]["name"])
    assert json.loads(str(model.to_relax().attrs["mrt.quantization"]))["states"] == model.states
    model.to_c(tmp_path)
    header = (tmp_path / "model.h").read_text()
    assert "state0, kept between calls: past, int16[1, 3, 3]" in header
    assert "in the first call each element is 0" in header


CONFIG = """\
model: {path: net.onnx, states: {past: kept}, initial: {past: 0.25}}
data:
  calibration: {npz: data.npz, x: x, slice: [0, 200]}
  test: {npz: data.npz, x: x, slice: [200, 230]}
calibrate: {stream_length: 10}
quantize: {preset: fast}
evaluate: {check: 12, stream_length: 10}
output: out
"""


def test_the_pipeline_runs_along_the_data(tmp_path: Path) -> None:
    causal_file(tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", x=SIGNAL[:230])
    (tmp_path / "config.yaml").write_text(CONFIG)
    run(tmp_path)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["samples"] == 30 and summary["bit_exact_samples"] == 12 and summary["sqnr_db"] > 36
    made = mrt.load(tmp_path / "out")
    assert np.abs(made.inputs[1].dequantize(states_of(made.graph)[0].first) - 0.25).max() < 1e-3
    with pytest.raises(ConfigError, match="the network keeps past between calls, and tune judges samples one by one"):
        mrt.tune(tmp_path / "config.yaml", seconds=1, metric="sqnr", least=30.0, output=tmp_path / "tuned")
