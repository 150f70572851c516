"""What a run reports and saves."""

from __future__ import annotations

import hashlib
import json
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import mrt
from mrt.config import load_config
from mrt.errors import ConfigError
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter
from mrt.report.errors import read_errors
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.fake_quantize import FakeQuantize
from tests.pipeline.runs import CONFIG, config_of, contents, run, save_data, silent, weights


def test_the_summary_is_what_independent_runs_give(finished: Path) -> None:
    summary = json.loads((finished / "out" / "summary.json").read_text())
    with np.load(finished / "data.npz") as data:
        x, y = data["x"][20:], data["y"][20:]
    session = onnxruntime.InferenceSession(finished / "net.onnx")
    reference = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    model = mrt.load(finished / "out")
    integers = [model.graph.evaluate(model.quantize_inputs(sample[None]))[0] for sample in x]
    logits = model.dequantize_outputs([np.concatenate(integers)])[0]
    float_logits = np.log(reference)
    float_logits += (logits - float_logits).mean(axis=1, keepdims=True)
    assert set(summary) == {
        "model", "samples", "float", "integer", "lost", "won", "agreement", "sqnr_db", "integer_only", "max_bits",
        "operators", "seconds", "bit_exact_samples",
    }  # fmt: skip
    assert (summary["model"], summary["samples"], summary["bit_exact_samples"]) == ("net", 27, 5)
    assert summary["float"]["top1"] == np.mean(reference.argmax(1) == y)
    assert summary["integer"]["top1"] == np.mean(logits.argmax(1) == y)
    right, integer_right = reference.argmax(1) == y, logits.argmax(1) == y
    assert summary["lost"] == np.sum(right & ~integer_right) and summary["won"] == np.sum(integer_right & ~right)
    assert summary["agreement"] == np.mean(logits.argmax(1) == reference.argmax(1))
    assert 25 < summary["sqnr_db"] < 60
    assert summary["integer_only"] is True
    assert summary["max_bits"] == mrt.verify(finished / "out").max_bits
    assert summary["operators"] == model.graph.count_operators()
    assert list(summary["seconds"]) == ["prepare", "calibrate", "quantize", "compile", "evaluate"]


def test_the_output_folder_is_the_saved_model_with_its_module(finished: Path) -> None:
    files = set(contents(finished / "out"))
    assert {"graph.json", "params.safetensors", "quantization.json", "certificate.json", "model.so"} <= files
    assert "model.so.json" in files
    assert not [name for name in files if "tmp" in name]
    with np.load(finished / "data.npz") as data:
        x = data["x"][:3]
    session = onnxruntime.InferenceSession(finished / "net.onnx")
    expected = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    found = mrt.load_module(finished / "out" / "model.so")(x)
    np.testing.assert_allclose(found[0] if isinstance(found, list) else found, expected, atol=0.05)


def test_errors_of_tensors_are_those_of_an_independent_float_run(finished: Path, tmp_path: Path) -> None:
    """ONNX Runtime gives the float tensors, the saved model's integers are read with its saved scales."""
    table = read_errors(finished / "out")
    assert table is not None and table.samples == 5
    network = onnx.load(finished / "net.onnx")
    names = ["relu", "flat", "logits"]
    network.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    session = onnxruntime.InferenceSession(network.SerializeToString())
    with np.load(finished / "data.npz") as data:
        x = data["x"][20:25]
    model = mrt.load(finished / "out")
    for name in names:
        found = table.of_origin(name)
        assert found is not None
        integer, fact = found
        graph = model.graph.with_outputs([model.graph.by_name[integer]])
        q = np.stack([graph.evaluate(model.quantize_inputs(sample[None]))[0] for sample in x]).astype(np.float64)
        f = np.stack([session.run([name], {"x": sample[None]})[0] for sample in x]).astype(np.float64)
        scale = model.scales[integer]
        real = scale * (q - model.zero_points.get(integer, 0))
        assert fact.sqnr_db == pytest.approx(10 * np.log10(np.square(f).sum() / np.square(f - real).sum()), rel=1e-4)
        assert fact.worst_steps == pytest.approx(np.abs((f - real) / scale).max(), rel=1e-3)
        assert 25 < fact.sqnr_db < 60
    assert set(table.tensors) <= set(model.graph.by_name)


def test_no_check_measures_no_errors(copy: Path) -> None:
    summary = run(copy, "evaluate.check=0", first="evaluate")
    assert summary is not None and summary["bit_exact_samples"] == 0
    table = read_errors(copy / "out")
    assert table is not None and (table.samples, table.tensors) == (0, {})


def test_changed_errors_are_a_changed_result(copy: Path) -> None:
    path = copy / "out" / "errors.json"
    recorded = json.loads((copy / "out" / "stages" / "evaluate.json").read_text())["files"]
    assert recorded["errors.json"] == hashlib.sha256(path.read_bytes()).hexdigest()
    run(copy, "quantize.activation.bits=5", first="quantize", last="quantize")
    assert not path.exists()


def test_what_quantization_gave_up_is_told(tmp_path: Path) -> None:
    """A sum of 256 products of 16 and 16 bits does not fit 32."""
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    w = numpy_helper.from_array(np.ones((2, 256), np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 256), ("y", 2))]
    graph = helper.make_graph([node], "net", values[:1], values[1:], [w])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(47, 256)))
    (tmp_path / "config.yaml").write_text(CONFIG.replace("y: y, ", ""))
    written = StringIO()
    wide = ("quantize.activation.bits=16", "quantize.weight.bits=16")
    run_pipeline(config_of(tmp_path, *wide), last="quantize", report=Reporter(Console(file=written)))
    notes = mrt.load(tmp_path / "out").notes
    weights, sums = notes
    assert "instead of 16" in weights and "partial sums, shifted right by" in sums
    assert {f"quantize: {note}" for note in notes} <= set(written.getvalue().splitlines())


def test_without_labels_only_agreement_is_told(copy: Path, tmp_path: Path) -> None:
    summary = run(copy, "data.test.y=null", "evaluate.samples=6", first="evaluate")
    assert summary is not None
    assert summary["float"] == summary["integer"] == {"top1": None}
    assert summary["samples"] == 6 and 0 <= summary["agreement"] <= 1


TWO_INPUTS = """\
model: {path: two.onnx}
data:
  calibration: {loader: "load.py:load"}
  test: {loader: "load.py:load"}
compile: {batch: 2}
output: out
"""

LOADER = """
import numpy as np

def load(split):
    rng = np.random.default_rng(3)
    return {"a": rng.normal(size=(9, 4)), "b": rng.normal(size=(9, 4))}, rng.integers(0, 3, 9)
"""


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Gemm", ["sum", "w"], ["scores"]),
        helper.make_node("Relu", ["sum"], ["relu"]),
    ]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("a", "b", "relu")}
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3])
    parameters = [numpy_helper.from_array(weights(4, 3, seed=5), "w")]
    graph = helper.make_graph(nodes, "two", [values["a"], values["b"]], [scores, values["relu"]], parameters)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "two.onnx"
    )
    (tmp_path / "load.py").write_text(LOADER)
    (tmp_path / "config.yaml").write_text(TWO_INPUTS)
    summary = run(tmp_path)
    assert summary is not None
    assert (summary["samples"], summary["bit_exact_samples"]) == (9, 9)
    assert summary["float"]["top1"] is not None
    assert summary["sqnr_db"] > 30


CONFIGS = Path(__file__).parents[2] / "benchmarks" / "configs"


REAL_NETWORKS = {
    "kws_dscnn": (0.97, 32),
    "mlperf_resnet8_cifar10": (0.97, 16),
    "resnet20_cifar10": (0.98, 4),
    "mobilenet_v1_0.25_224": (0.9, 2),
}
"""For each: the least agreement with float, and how many samples are compared with NumPy bit for bit."""


LARGE = ("mlperf_resnet8_cifar10", "resnet20_cifar10", "mobilenet_v1_0.25_224")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in LARGE)) for name in REAL_NETWORKS]
)
def test_real_networks_lose_at_most_a_point(
    name: str, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreement, compared = REAL_NETWORKS[name]
    monkeypatch.setenv("MRT_DATA", str(data_folder))
    config = load_config(CONFIGS / f"{name}.yaml", ["data.calibration.samples=64", f"evaluate.check={compared}"])
    summary = run_pipeline(config, last="evaluate", output=tmp_path, report=silent())
    assert summary is not None
    assert summary["bit_exact_samples"] == compared
    assert summary["max_bits"] <= 32
    assert summary["float"]["top1"] - summary["integer"]["top1"] <= 0.01
    assert summary["agreement"] > agreement
    mrt.verify(tmp_path)


def test_sequential_bias_correction_runs_on_the_calibration_data(copy: Path, finished: Path) -> None:
    """From saved stages it gives the model that the Python API gives, whose logits have the float means."""
    run(copy, first="calibrate", last="calibrate")
    options = ["quantize.preset=best", "quantize.bias_correction=sequential", "quantize.weight.bits=4"]
    run(copy, *options, first="quantize", last="quantize")
    with np.load(finished / "data.npz") as data:
        x = data["x"][:20]
    graph = mrt.load_model(copy / "net.onnx")
    config = mrt.QuantizationConfig(bias_correction="sequential", weight={"bits": 4})
    model = mrt.quantize(graph, [x], config, mrt.CalibrationConfig(batch_size=8))
    saved = mrt.load(copy / "out")
    assert saved.digest == model.digest and set(saved.corrections) == set(model.corrections) != set()
    session = onnxruntime.InferenceSession(copy / "net.onnx")
    logits = np.log(np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x]))
    worst = {}
    for mode, each in (
        ("sequential", saved),
        ("none", mrt.quantize(graph, [x], config.model_copy(update={"bias_correction": "none"}))),
    ):
        integers = [each.graph.evaluate(each.quantize_inputs(sample[None]))[0] for sample in x]
        shift = (each.dequantize_outputs([np.concatenate(integers)])[0] - logits).mean(axis=0)
        worst[mode] = np.ptp(shift)  # a softmax leaves open what is added to all logits
    assert worst["sequential"] < 0.01 and worst["none"] > 0.05


def test_sequential_bias_correction_needs_calibration_data(copy: Path) -> None:
    with pytest.raises(ConfigError, match="stage quantize needs it for bias_correction: sequential"):
        run(copy, "quantize.bias_correction=sequential", "data.calibration=null", first="quantize")


def save_quantized_network(path: Path) -> None:
    """A dense layer between ONNX's quantizers; the weight is dequantized."""
    integers = np.random.default_rng(1).integers(-127, 128, (72, 5)).astype(np.int8)
    parameters = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "w": integers,
        "sw": np.full(5, 0.01, np.float32),
        "zw": np.zeros(5, np.int8),
        "sy": np.float32(0.2),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wr"], axis=1),
        helper.make_node("Flatten", ["xr"], ["flat"]),
        helper.make_node("MatMul", ["flat", "wr"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "sy", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "sy", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_a_network_that_is_quantized_runs_without_calibration_data(tmp_path: Path) -> None:
    """Its integers are those of ONNX Runtime, but where the sum lies half-way between two of them."""
    save_quantized_network(tmp_path / "net.onnx")
    save_data(tmp_path / "data.npz")
    (tmp_path / "config.yaml").write_text(CONFIG)
    summary = run(tmp_path, "data.calibration=null", "quantize.tune_ranges=true")
    assert summary is not None and summary["integer_only"] and summary["bit_exact_samples"] == 5
    x = np.load(tmp_path / "data.npz")["x"]
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    wanted = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    found = np.asarray(mrt.load_module(tmp_path / "out" / "model.so")(x))
    steps = np.abs(found - wanted) / 0.2
    assert steps.max() < 1.001 and np.mean(steps > 0.5) < 0.02
    with pytest.raises(ConfigError, match="data.calibration is missing; stage quantize needs it"):
        run(tmp_path, "data.calibration=null", "quantize.bias_correction=fast")


def test_tuned_ranges_are_noted_by_the_run_and_in_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 2, 6, 6)))
    names = ("input_low", "input_high", "output_low", "output_high")
    limits = [builder.parameter(n, np.float32(v)) for n, v in zip(names, (-1.0, 1.63) * 2, strict=True)]
    graph = builder.graph([builder.apply(FakeQuantize(levels=256), [data, *limits], "y")])
    written = StringIO()
    monkeypatch.setattr("mrt.stages.network.load_model", lambda *_, **__: graph)
    (tmp_path / "config.yaml").write_text(CONFIG)
    config = config_of(tmp_path, "data={}", "quantize.tune_ranges=true")
    run_pipeline(config, last="quantize", report=Reporter(Console(file=written, width=500)))
    (note,) = mrt.load(tmp_path / "out").notes
    assert note.startswith("y (FakeQuantize): tuned to an integer zero point: input [-1, 1.63] became [")
    assert f"quantize: {note}" in written.getvalue()
