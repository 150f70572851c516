"""The exported model as a whole: names, metadata, the batch, files, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from exported import assert_same, exported, facts, run
from typer.testing import CliRunner

import mrt
import mrt.export.onnx.model
from mrt.cli import app
from mrt.errors import ModelFileError
from mrt.model import QuantizedModel
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.interval import Array
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Identity
from mrt.symbol.operators.transform import Reshape


def real(model: QuantizedModel, batch: int) -> Array:
    shape = (batch, *model.inputs[0].shape[1:])
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_metadata_suffice_to_run_the_model_on_real_values(model: QuantizedModel, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    model.to_onnx(path)
    written = onnx.load(path)
    onnx.checker.check_model(written, full_check=True)
    facts = {entry.key: entry.value for entry in written.metadata_props}
    assert facts["mrt.digest"] == model.digest and facts["mrt.format_version"] == "1"
    (given,), (taken,) = json.loads(facts["mrt.inputs"]), json.loads(facts["mrt.outputs"])
    x = real(model, 1)
    steps = np.rint(x / np.float32(given["scale"])) + given["zero_point"]
    feeds = {given["name"]: np.clip(steps, given["lo"], given["hi"]).astype(given["dtype"])}
    ((found,),) = run(written, [feeds])
    assert taken["name"] == written.graph.output[0].name
    assert taken["lo"] <= found.min() and found.max() <= taken["hi"]
    (expected,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    scale = np.asarray(taken["scale"])
    assert (expected == (scale * (found.astype(np.float64) - taken["zero_point"])).astype(np.float32)).all()


def test_symbols_keep_their_names_and_types(model: QuantizedModel) -> None:
    graph = exported(model.graph, model.inputs).graph
    assert [value.name for value in graph.input] == [symbol.name for symbol in model.graph.inputs]
    assert [value.name for value in graph.output] == [symbol.name for symbol in model.graph.outputs]
    made = {name for node in graph.node for name in node.output}
    accumulators = {symbol.name for symbol in model.graph.operators if symbol.dtype == "int32"}
    assert accumulators <= made
    for value in (*graph.input, *graph.output, *graph.value_info):
        symbol = model.graph.by_name[value.name]
        sizes = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        assert (sizes, dtype.name) == (symbol.shape, symbol.dtype)


def test_nothing_is_written_that_no_output_needs(model: QuantizedModel) -> None:
    graph = exported(model.graph, model.inputs).graph
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    assert {name for node in graph.node for name in node.output} <= read
    assert {tensor.name for tensor in graph.initializer} <= read


def test_another_batch(model: QuantizedModel, tmp_path: Path) -> None:
    model.to_onnx(tmp_path / "net.onnx", batch=3)
    written = onnx.load(tmp_path / "net.onnx")
    feeds = model.quantize_inputs(real(model, 3))
    assert_same(model.rebatched(3).graph, written, [feeds])
    facts = {entry.key: entry.value for entry in written.metadata_props}
    assert json.loads(facts["mrt.inputs"])[0]["shape"][0] == 3 and facts["mrt.digest"] == model.digest


def test_outputs_that_are_inputs_or_parameters_or_stand_twice() -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", TensorType((2, 3), "int8")), builder.parameter("w", np.array([5, -5], np.int8))
    y = builder.apply(Relu(), [x], "y")
    copy = builder.apply(Identity(), [builder.apply(Relu(), [y], "hidden")], "copy")
    graph = builder.graph([x, y, weight, y, copy, x])
    model = exported(graph)
    names = [value.name for value in model.graph.output]
    assert len({*names, "x"}) == 7 and (names[1], names[4]) == ("y", "copy")
    assert_same(graph, model, [{"x": np.array([[-128, 0, 127], [1, -1, 5]], np.int8)}])


def test_names_that_made_up_ones_would_take() -> None:
    """Symbols are called as values that are made on the way would be."""
    builder = GraphBuilder()
    x = builder.input("y/Less", TensorType((4,), "int16"))
    one = builder.parameter("constant", np.array(1, np.int8))
    shifted = builder.apply(mrt.symbol.find_operator("right_shift")(), [x, one], "y")
    wide = builder.apply(Cast("int8"), [shifted], "y/Less/int32")
    graph = builder.graph([wide, builder.apply(mrt.symbol.find_operator("abs")(), [wide], "y/Add")])
    model = exported(graph, facts(graph, {"y/Less": (-9, 9)}))
    assert [value.name for value in model.graph.output] == ["y/Less/int32", "y/Add"]
    assert_same(graph, model, [{"y/Less": np.array([-9, -1, 3, 9], np.int16)}])


def test_chains_of_thousands() -> None:
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((2,), "int32"))
    for _ in range(3000):
        symbol = builder.apply(mrt.symbol.find_operator("_rminus_scalar")(scalar=3), [symbol])
    graph = builder.graph([symbol])
    assert len(exported(graph, facts(graph, {"x": (-5, 5)})).graph.node) == 3000


def test_a_model_beyond_the_limit_of_a_file_is_refused(
    model: QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the model is put together, or after: what its parameters are, and what it is with its nodes."""
    largest = max(model.graph.parameters, key=lambda name: model.graph.parameters[name].nbytes)
    for limit in (exported(model.graph, model.inputs).ByteSize(), 10):
        monkeypatch.setattr(mrt.export.onnx.model, "MOST_BYTES", limit)
        with pytest.raises(ModelFileError, match=f"{largest}.*at most {limit} "):
            model.to_onnx(tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_command(model: QuantizedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["export", str(tmp_path / "saved"), *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert model.digest in call("--format", "onnx")
    call("--format", "onnx", "--batch", "2", "--output", str(tmp_path / "two.onnx"))
    assert_same(model.graph, onnx.load(tmp_path / "saved" / "model.onnx"), [model.quantize_inputs(real(model, 1))])
    two = onnx.load(tmp_path / "two.onnx")
    assert_same(model.rebatched(2).graph, two, [model.quantize_inputs(real(model, 2))])
    assert mrt.verify(tmp_path / "saved").digest == model.digest
    failed = CliRunner().invoke(app, ["export", str(tmp_path), "--format", "onnx"])
    assert failed.exit_code == 1 and "certificate.json" in failed.stderr


WITHOUT_VNNI = """
import sys
import numpy as np
import onnxruntime

for path in sys.argv[1:]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with np.load(path + ".npz") as data:
        found = session.run(None, {"x": data["x"]})[0]
        assert (found == data["y"]).all(), path
print("exact")
"""


@pytest.mark.slow
def test_extremes_are_exact_on_a_processor_without_vnni(tmp_path: Path) -> None:
    """Valgrind plays a processor that has AVX2 and nothing later, on which sums for uint8 and int8 do saturate."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    paths = []
    for dtype, least, most in (("uint8", 0, 255), ("int8", -128, 127)):
        for weight in (-128, 127):
            builder = GraphBuilder()
            x = builder.input("x", TensorType((5, 64, 1), dtype))
            taps = builder.parameter("w", np.full((8, 64), weight, np.int8))
            image = builder.parameter("k", np.full((8, 64, 1), weight, np.int8))
            dense = builder.apply(FullyConnected(8, no_bias=True), [x, taps])
            conv = builder.apply(Convolution((1,), 8, no_bias=True), [x, image])
            total = builder.apply(ElemwiseAdd(), [dense, builder.apply(Reshape((5, 8)), [conv])])
            values = np.full((5, 64, 1), most if weight > 0 else least or most, dtype)
            paths.append(str(tmp_path / f"{dtype}{weight}.onnx"))
            Path(paths[-1]).write_bytes(exported(builder.graph([total])).SerializeToString())
            expected = 2 * 64 * int(values.flat[0]) * weight
            np.savez(paths[-1] + ".npz", x=values, y=np.full((5, 8), expected, np.int32))
    command = ["valgrind", "--tool=none", "--quiet", sys.executable, "-c", WITHOUT_VNNI, *paths]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "exact\n", result.stderr
