"""The exported ONNX model that takes any number of samples: ONNX Runtime gives what `Graph.evaluate` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exported import assert_same
from typer.testing import CliRunner

from mrt.cli import app
from mrt.errors import ConfigError, GraphError
from mrt.export.formats import EXPORT_FORMATS, export_format
from mrt.export.onnx import with_any_batch
from mrt.frontend import from_onnx
from mrt.model import QuantizedModel, assemble
from mrt.quantization.options import QuantizationConfig
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Reshape, Transpose
from tests.quantization.networks import chain, quantize_and_run

BATCHES = 1, 3, 8


def reshaping() -> QuantizedModel:
    """A network whose reshapes state the batch, and which has as many channels as the exporter takes samples."""
    random = np.random.default_rng(0)
    graph = chain(
        (1, 2, 5, 7),
        (Convolution((3, 3), 7, no_bias=True), [random.standard_normal((7, 2, 3, 3))]),
        (Relu(), []),
        (Reshape((-1, 7, 15)), []),
        (Transpose((0, 2, 1)), []),
        (Reshape((-1, 105)), []),
        (FullyConnected(11, no_bias=True), [random.standard_normal((11, 105))]),
    )
    samples = [{"x": random.standard_normal((1, 2, 5, 7)).astype(np.float32)} for _ in range(4)]
    config = QuantizationConfig.model_validate({"activation": {"quantizer": "affine"}})
    return assemble(quantize_and_run(graph, samples, config).integer, None, {})


def integers(model: QuantizedModel, batch: int) -> Any:
    (entry,) = model.inputs
    random = np.random.default_rng(batch)
    return {entry.name: random.integers(entry.lo, entry.hi + 1, (batch, *entry.shape[1:])).astype(entry.dtype)}


def test_one_file_serves_every_batch(model: QuantizedModel, tmp_path: Path) -> None:
    model.to_onnx(tmp_path / "net.onnx", batch="any")
    written = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(written, full_check=True)
    for value in (*written.graph.input, *written.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    (given,) = json.loads({entry.key: entry.value for entry in written.metadata_props}["mrt.inputs"])
    assert given["shape"] == ["batch", 2, 5, 5]
    for batch in BATCHES:
        assert_same(model.rebatched(batch).graph, written, [integers(model, batch)])
        assert from_onnx(written, batch=batch).outputs[0].shape == (batch, 3)


def test_channels_of_the_batch_s_number_stay_channels(model: QuantizedModel, tmp_path: Path) -> None:
    net = reshaping()
    net.to_onnx(tmp_path / "net.onnx", batch="any")
    written = onnx.load(tmp_path / "net.onnx")
    for batch in BATCHES:
        assert_same(net.rebatched(batch).graph, written, [integers(net, batch)])


def test_a_batch_that_the_network_holds_is_refused(model: QuantizedModel, tmp_path: Path) -> None:
    data = chain((1, 4), (Reshape((1, 2, 2)), []))
    samples = [{"x": np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32)}]
    net = assemble(quantize_and_run(data, samples, QuantizationConfig()).integer, None, {})
    with pytest.raises(GraphError, match=r"\(Reshape\): .* the graph runs with batch 1 only"):
        net.to_onnx(tmp_path / "net.onnx", batch="any")
    with pytest.raises(GraphError, match="batch is 'all'; a number of samples, or 'any', is needed"):
        model.to_onnx(tmp_path / "net.onnx", batch="all")  # type: ignore[arg-type]


def test_what_holds_a_constant_for_each_sample_is_refused() -> None:
    def export(batch: int) -> onnx.ModelProto:
        rows = onnx.numpy_helper.from_array(np.ones((batch, 2), np.int32), "rows")
        shapes = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, (batch, 2)) for name in "xy"]
        node = onnx.helper.make_node("Add", ["x", "rows"], ["y"], name="sum")
        return onnx.helper.make_model(onnx.helper.make_graph([node], "g", shapes[:1], shapes[1:], [rows]))

    with pytest.raises(GraphError, match=r"sum \(Add\) holds a constant for each sample; give the number of samples"):
        with_any_batch(export)


def test_the_command_takes_any_for_onnx_alone(model: QuantizedModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    done = CliRunner().invoke(app, ["export", str(tmp_path), "--format", "onnx", "--batch", "any"])
    assert done.exit_code == 0, done.output
    assert onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [entry.name for entry in EXPORT_FORMATS if entry.takes_any_batch] == ["onnx"]
    assert export_format("c").batch("12") == 12 and export_format("c").batch(None) is None
    with pytest.raises(ConfigError, match="--batch is 'any'; a number is needed for --format c"):
        export_format("c").batch("any")
