"""The quantized model: saved and loaded whole, run by NumPy and compiled to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import mrt
from mrt.errors import (
    CompilationError,
    ConfigError,
    DataError,
    GraphError,
    ModelFileError,
    UnsupportedOperatorError,
    VerificationError,
)
from mrt.progress import Reporter
from mrt.quantization.options import ChannelGranularity
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import LeakyReLU, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseSub
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.round_to_grid import RoundToGrid
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.transform import Concat, Flatten, Reshape

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> Graph:
    """Two inputs, a residual, a concat, average pooling, and two outputs of which one ends in a softmax."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 8, 8)))
    z = builder.input("z", TensorType((1, 4)))
    conv = Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1))
    first = builder.apply(conv, [x, builder.parameter("w1", normal(4, 4, 3, 3)), builder.parameter("b1", normal(4))])
    first = builder.apply(Relu(), [first], "first")
    residual = builder.apply(ElemwiseAdd(), [first, x], "residual")
    joined = builder.apply(Concat(dim=1), [residual, first], "joined")
    pooled = builder.apply(Pooling(global_pool=True, pool_type="avg"), [joined], "pooled")
    flat = builder.apply(Flatten(), [pooled], "flat")
    dense = FullyConnected(num_hidden=4)
    logits = builder.apply(dense, [flat, builder.parameter("w2", normal(4, 8)), builder.parameter("b2", normal(4))])
    shifted = builder.apply(BroadcastAdd(), [logits, z], "shifted")
    return builder.graph([builder.apply(Softmax(), [shifted], "probabilities"), residual])


def batches(count: int = 12) -> list[dict[str, np.ndarray]]:
    return [{"x": normal(4, 4, 8, 8), "z": normal(4, 4)} for _ in range(count // 4)]


@pytest.fixture(scope="module")
def float_graph() -> Graph:
    return network()


@pytest.fixture(scope="module")
def calibration() -> list[dict[str, np.ndarray]]:
    return batches()


@pytest.fixture(scope="module")
def model(float_graph: Graph, calibration: list[dict[str, np.ndarray]]) -> mrt.QuantizedModel:
    return mrt.quantize(float_graph, calibration, runner=NumpyRunner())


def test_the_tail_is_cut_and_the_rest_is_integer(model: mrt.QuantizedModel) -> None:
    assert model.postprocess is not None
    assert model.postprocess.count_operators() == {"softmax": 1}
    assert all(symbol.type.is_integer for symbol in model.graph.symbols)
    assert model.certificate.max_bits <= 32


def test_a_saved_model_is_the_same_model(model: mrt.QuantizedModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    again = mrt.load(tmp_path)
    assert again.files == model.files
    assert again.digest == model.digest
    assert str(again.graph) == str(model.graph)


def test_compiled_equals_evaluated(model: mrt.QuantizedModel, tmp_path: Path) -> None:
    module = model.compile(batch=4)
    x = {"x": normal(10, 4, 8, 8), "z": normal(10, 4)}
    integers = model.quantize_inputs(x)
    compiled = module.run_integer(integers)
    for i in range(10):
        expected = model.graph.evaluate({name: value[i : i + 1] for name, value in integers.items()})
        for got, wanted in zip(compiled, expected, strict=True):
            np.testing.assert_array_equal(got[i : i + 1], wanted)
    module.save(tmp_path / "model.so")
    loaded = mrt.load_module(tmp_path / "model.so")
    for got, wanted in zip(loaded.run_integer(integers), compiled, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for got, wanted in zip(loaded(x), module(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_tuned_module_gives_the_same_integers(model: mrt.QuantizedModel) -> None:
    integers = model.quantize_inputs({"x": normal(2, 4, 8, 8), "z": normal(2, 4)})
    expected = model.rebatched(2).graph.evaluate(integers)
    module = model.compile({"threads": 1}, 2, mrt.TuneConfig(trials=1))
    for got, wanted in zip(module.run_integer(integers), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    with pytest.raises(CompilationError, match="mcup is not a key"):
        model.compile({"mcup": "znver4"})


@pytest.mark.parametrize("number", [True, 1.5, "2"])
def test_what_counts_is_a_whole_number(model: mrt.QuantizedModel, number: Any) -> None:
    with pytest.raises(GraphError, match="a whole number, 1 or more, is needed"):
        model.compile(batch=number)
    with pytest.raises(CompilationError, match=r"an mrt\.TuneConfig, or None, is needed"):
        model.compile(tune=number)
    with pytest.raises(CompilationError, match="threads is"):
        model.compile({"threads": number})
    for config, key in (
        (mrt.CalibrationConfig, "batch_size"),
        (mrt.TuneConfig, "trials"),
        (ChannelGranularity, "channel"),
    ):
        with pytest.raises(ConfigError, match=key):
            config.model_validate({key: number})


def test_a_module_gives_what_the_float_network_gives(
    float_graph: Graph, model: mrt.QuantizedModel, calibration: list[dict[str, np.ndarray]]
) -> None:
    """Of samples that it was calibrated with: others may exceed the ranges."""
    feeds = {name: value[:3] for name, value in calibration[0].items()}
    outputs = model.compile()(feeds)
    for i in range(3):
        expected = float_graph.evaluate({name: value[i : i + 1] for name, value in feeds.items()})
        for got, wanted in zip(outputs, expected, strict=True):
            assert np.abs(got[i : i + 1] - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_module_that_is_only_saved_is_never_started(
    model: mrt.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_machine:
        without_machine.setattr("tvm.relax.VirtualMachine", None)
        model.compile().save(tmp_path / "model.so")
    x = {"x": normal(1, 4, 8, 8), "z": normal(1, 4)}
    integers = model.quantize_inputs(x)
    for got, wanted in zip(
        mrt.load_module(tmp_path / "model.so").run_integer(integers), model.graph.evaluate(integers), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_relax_holds_integers_only(model: mrt.QuantizedModel) -> None:
    module = model.to_relax()
    text = module.script()
    assert "float" not in text.split("# Metadata")[0].replace('"float', "")
    assert "mrt.quantization" in module.attrs


def test_inputs_are_checked(model: mrt.QuantizedModel) -> None:
    with pytest.raises(DataError, match="a mapping"):
        model.quantize_inputs(normal(1, 4, 8, 8))
    with pytest.raises(DataError, match="'z'"):
        model.quantize_inputs({"x": normal(1, 4, 8, 8)})
    with pytest.raises(DataError, match="x"):
        model.quantize_inputs({"x": np.full((1, 4, 8, 8), np.nan, np.float32), "z": normal(1, 4)})


def test_of_a_baked_batch_as_many_samples_go_through_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 3)))
    flat = builder.apply(Reshape(shape=(4, 3)), [x], "flat")
    back = builder.apply(Reshape(shape=(1, 12)), [builder.apply(Relu(), [flat])], "back")
    model = mrt.quantize(builder.graph([back]), [normal(8, 4, 3)], runner=NumpyRunner())
    module = model.compile({"threads": 2}, batch=4, report=Reporter())
    assert (module.batch, module.workers) == (1, 2)
    assert "batches of 1: flat (Reshape): shape (4, 3) does not keep axis 0" in capsys.readouterr().out
    data = normal(5, 4, 3)
    integers = model.quantize_inputs(data)
    for number, found in enumerate(module.run_integer(integers)):
        np.testing.assert_array_equal(found, model.graph.evaluate({"x": integers["x"][number : number + 1]})[0][0])
    np.testing.assert_array_equal(module(data), model.compile()(data))
    with pytest.raises(GraphError, match="flat"):
        model.rebatched(2)


def test_states_whose_batch_is_baked_in_are_refused() -> None:
    """Each of their samples is a stream."""
    builder = GraphBuilder()
    x, held = (builder.input(name, TensorType((1, 4, 3))) for name in ("x", "held"))
    flat = builder.apply(Reshape(shape=(4, 3)), [builder.apply(ElemwiseAdd(), [x, held])], "flat")
    back = builder.apply(Reshape(shape=(1, 4, 3)), [builder.apply(Relu(), [flat])], "back")
    start = builder.parameter("start", np.zeros((1, 4, 3), np.float32))
    graph = builder.graph([back, builder.apply(Assign(), [back, held, start], "next")])
    model = mrt.quantize(graph, [normal(8, 4, 3)], runner=NumpyRunner())
    with pytest.raises(GraphError, match="flat"):
        model.compile(batch=2)


def test_an_output_without_the_batch_is_told_before_calibration() -> None:
    builder = GraphBuilder()
    y = builder.apply(Reshape(shape=(-1,)), [builder.input("x", TensorType((1, 4)))], "flat")
    with pytest.raises(GraphError, match="output flat"):
        mrt.quantize(builder.graph([y]), iter(()), runner=NumpyRunner())


def test_a_class_token_follows_the_batch() -> None:
    builder = GraphBuilder()
    x, token = builder.input("x", TensorType((1, 3, 4))), builder.parameter("token", normal(1, 1, 4))
    joined = builder.apply(Concat(dim=1), [token, x], "joined")
    dense = FullyConnected(num_hidden=5, no_bias=True, flatten=False)
    graph = builder.graph([builder.apply(dense, [joined, builder.parameter("w", normal(5, 4))], "dense")])
    model = mrt.quantize(graph, [normal(8, 3, 4)], runner=NumpyRunner())
    integers = model.quantize_inputs(normal(6, 3, 4))
    found = model.compile(batch=4).run_integer(integers)
    for i in range(6):
        np.testing.assert_array_equal(found[i : i + 1], model.graph.evaluate({"x": integers["x"][i : i + 1]})[0])


def test_what_is_no_model_is_refused(tmp_path: Path, model: mrt.QuantizedModel) -> None:
    with pytest.raises(ModelFileError, match="holds no saved model"):
        mrt.load(tmp_path)
    model.save(tmp_path)
    (tmp_path / "graph.json").write_text("{}")
    with pytest.raises(VerificationError, match="graph.json"):
        mrt.load(tmp_path)


def classifier() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    return builder.graph([builder.apply(Relu(), [x], "y")])


def test_a_tail_that_the_certificate_does_not_name_is_not_read(model: mrt.QuantizedModel, tmp_path: Path) -> None:
    plain = mrt.quantize(classifier(), [normal(4, 3)], runner=NumpyRunner())
    plain.save(tmp_path / "plain")
    model.save(tmp_path / "other")
    for name in ("postprocess.json", "postprocess.safetensors"):
        (tmp_path / "plain" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert mrt.load(tmp_path / "plain").postprocess is None


def test_one_batch_serves_as_the_batches() -> None:
    data = normal(4, 3)
    digests = {mrt.quantize(classifier(), b, runner=NumpyRunner()).digest for b in ([data], data, {"x": data})}
    assert len(digests) == 1


def test_uncovered_operators_are_told_before_calibration() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    grid = builder.parameter("grid", np.ones((4, 1), np.float32))
    graph = builder.graph([builder.apply(Relu(), [builder.apply(RoundToGrid(), [x, grid], "middle")], "y")])

    def never() -> Iterator[dict[str, np.ndarray]]:
        pytest.fail("calibration has begun")
        yield {"x": normal(1, 3)}

    with pytest.raises(UnsupportedOperatorError, match="middle"):
        mrt.quantize(graph, never(), runner=NumpyRunner())


def test_a_folder_that_cannot_be_made_is_named(model: mrt.QuantizedModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="file"):
        model.save(tmp_path / "file")


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    mrt.quantize(classifier(), [normal(4, 3)], runner=NumpyRunner()).save(tmp_path)
    path, certificate = tmp_path / "quantization.json", tmp_path / "certificate.json"
    old = sha256(path.read_bytes()).hexdigest()
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))
    certificate.write_text(certificate.read_text().replace(old, sha256(path.read_bytes()).hexdigest()))
    with pytest.raises(ModelFileError, match="format_version 2"):
        mrt.load(tmp_path)


def compiled_equals_evaluated(graph: Graph, count: int = 5, batch: int = 2) -> None:
    samples = {symbol.name: normal(count, *symbol.shape[1:]) for symbol in graph.inputs}
    model = mrt.quantize(graph, [samples], runner=NumpyRunner())
    integers = model.quantize_inputs(samples)
    found = model.compile(batch=batch).run_integer(integers)
    for i in range(count):
        expected = model.graph.evaluate({name: value[i : i + 1] for name, value in integers.items()})
        for symbol, got, wanted in zip(model.graph.outputs, found, expected, strict=True):
            varies = symbol in model.graph.dependents(model.graph.inputs)
            np.testing.assert_array_equal(got[i : i + 1] if varies else got, wanted)


def test_outputs_that_are_inputs_and_parameters_compile() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4)))
    w = builder.parameter("w", normal(3, 4))
    y = builder.apply(FullyConnected(num_hidden=3, no_bias=True), [x, w], "y")
    compiled_equals_evaluated(builder.graph([w, y, x, y]))


@pytest.mark.parametrize("slope", [0.01, 0.25])
def test_leaky_relu_compiles(slope: float) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8)))
    positive = builder.apply(Relu(), [x], "positive")
    leaks = [builder.apply(LeakyReLU(slope=slope), [source]) for source in (x, positive)]
    compiled_equals_evaluated(builder.graph(leaks))


def test_a_tensor_less_itself_compiles() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8)))
    nothing = builder.apply(ElemwiseSub(), [x, x], "nothing")
    scaled = builder.apply(BroadcastMul(), [nothing, builder.parameter("c", normal(1, 8))], "scaled")
    compiled_equals_evaluated(builder.graph([scaled, builder.apply(ElemwiseAdd(), [scaled, x], "sum")]))


def test_an_outputs_dtype_holds_its_zero_point(tmp_path: Path) -> None:
    """The output reaches [46, 88], which int8 holds; its zero point, 255, it does not."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[1, 4] x) => (float[1, 4] y)
        <float s = {0.02}, uint8 z = {128}, float w = {-1.0}, float c = {-10.0}, float so = {0.06}, uint8 zo = {255}> {
            xq = QuantizeLinear(x, s, z)
            xd = DequantizeLinear(xq, s, z)
            r = Relu(xd)
            m = Mul(r, w)
            a = Add(m, c)
            q = QuantizeLinear(a, so, zo)
            y = DequantizeLinear(q, so, zo)
        }""")
    model = mrt.quantize(mrt.from_onnx(made))
    [output] = model.outputs
    assert (output.dtype, output.zero_point, output.lo, output.hi) == ("uint8", 255, 46, 88)
    model.save(tmp_path)
    x = np.array([[1, 2, -1, 0]], np.float32)
    [y] = model.dequantize_outputs(mrt.load(tmp_path).graph.evaluate(model.quantize_inputs(x)))
    [expected] = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y, expected)
