"""States: what a network keeps between calls, from its reading to its stream and to exported files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

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
from tests.causal_network import CHANNELS, SIGNAL, STEP, TAPS, WEIGHT, causal_file, convolved, saved
from tests.pipeline.runs import run


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = causal_file(tmp_path_factory.mktemp("net") / "net.onnx")
    return mrt.load_model(path, states={"past": "kept"})


@pytest.fixture(scope="module")
def model(graph: Graph) -> QuantizedModel:
    return mrt.quantize(graph, [SIGNAL[:100], SIGNAL[100:200]], QuantizationConfig(preset="fast"), runner=NumpyRunner())


def test_the_float_stream_is_the_convolution_of_the_whole_signal(graph: Graph) -> None:
    (state,) = states_of(graph)
    assert (state.name, state.output.name, state.place) == ("past", "past_next", 1)
    (found,) = stream_of(graph, NumpyRunner()).along(SIGNAL[:20])
    np.testing.assert_allclose(found, convolved(SIGNAL[:20]), atol=1e-5)


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
