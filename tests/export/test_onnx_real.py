"""ONNX from real values to real values: ONNX Runtime gives what the model does, the float tail included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

from mrt.cli import app
from mrt.errors import ConfigError, UnsupportedOperatorError
from mrt.export.onnx import to_real_onnx
from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph, GraphBuilder, Symbol, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.rounding import ROUNDINGS


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def test_real_values_go_through_every_batch(model: QuantizedModel, tmp_path: Path) -> None:
    """Bit for bit: without a float tail there is nothing in between that rounds otherwise."""
    model.save(tmp_path)
    words = ["export", str(tmp_path), "--format", "onnx", "--batch", "any", "--ends", "float"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    written = onnx.load(tmp_path / "model.onnx")
    entries = {entry.key: entry.value for entry in written.metadata_props}
    assert entries == {"mrt.format_version": "1", "mrt.digest": model.digest, "mrt.ends": "float"}
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, *model.inputs[0].shape[1:])).astype(np.float32)
        x.flat[:3] = np.inf, -np.inf, 1e-30
        (found,) = run(written, {"x": x})
        q = model.rebatched(batch).graph.evaluate(model.quantize_inputs(x))
        assert found.tobytes() == model.dequantize_outputs(q)[0].tobytes()


def test_inputs_are_rounded_as_they_say() -> None:
    """Every rounding, both places of the zero point, narrow and wide integers, scales along an axis."""
    values = np.concatenate([np.arange(-20, 20) * 0.05, np.random.default_rng(0).normal(0, 9, 20)])
    x = values.astype(np.float32).reshape(3, 20)
    made = [
        TensorQuantization("x", x.shape, dtype, 0.1, zero, -100, 120, rounding=rounding, zero_point_first=first)
        for rounding in ROUNDINGS
        for zero, first, dtype in ((0, False, "int8"), (-7, False, "int16"), (5, True, "int8"))
    ]
    made.append(TensorQuantization("x", x.shape, "int32", np.linspace(0.01, 0.1, 20), 9, -(2**31), 2**31 - 1))
    builder = GraphBuilder()
    symbols = [builder.input(f"y{i}", TensorType(entry.shape, entry.dtype)) for i, entry in enumerate(made)]
    entries = [replace(entry, name=symbol.name) for entry, symbol in zip(made, symbols, strict=True)]
    graph = builder.graph([builder.apply(find_operator("_copy")(), [symbol]) for symbol in symbols])
    outputs = [replace(entry, name=symbol.name) for entry, symbol in zip(entries, graph.outputs, strict=True)]
    found = run(to_real_onnx(graph, entries, outputs, None, "digest"), {entry.name: x for entry in entries})
    for entry, y in zip(entries, found, strict=True):
        np.testing.assert_array_equal(y, entry.dequantize(entry.quantize(x)), err_msg=f"{entry}")


def applied(builder: GraphBuilder, name: str, inputs: list[Symbol], **attributes: Any) -> Symbol:
    return builder.apply(find_operator(name)(**attributes), inputs)


def tail(shape: tuple[int, ...], output: str) -> Graph:
    """Every operator that a tail may have, of one tensor [n, 3]."""
    builder, random = GraphBuilder(), np.random.default_rng(0)
    x = builder.input(output, TensorType(shape))
    positive = applied(builder, "_plus_scalar", [applied(builder, "square", [x])], scalar=0.5)
    weight = builder.parameter("w", random.standard_normal((4, 3)).astype(np.float32))
    bias = builder.parameter("b", random.standard_normal(4).astype(np.float32))
    slope = builder.parameter("slope", np.float32([0.1, 0.2, 0.3]))
    names = ("tanh", "sigmoid", "erf", "abs", "negative", "relu", "softrelu", "floor", "ceil", "silu", "_copy")
    made = [applied(builder, name, [x]) for name in names]
    made += [applied(builder, name, [positive]) for name in ("log", "sqrt", "reciprocal")]
    made += [applied(builder, "exp", [applied(builder, "_minus_scalar", [x], scalar=1.0)])]
    made += [applied(builder, f"_{name}_scalar", [x], scalar=3.0) for name in ("mul", "div", "rminus", "maximum")]
    made += [applied(builder, "_rdiv_scalar", [positive], scalar=3.0)]
    made += [applied(builder, "_power_scalar", [positive], scalar=1.5)]
    kinds = ("leaky", "elu", "selu", "gelu", "gelu_tanh")
    made += [applied(builder, "LeakyReLU", [x], act_type=kind, slope=0.3) for kind in kinds]
    made += [applied(builder, "LeakyReLU", [x, slope], act_type="prelu")]
    made += [applied(builder, "hard_sigmoid", [x]), applied(builder, "clip", [x], a_min=-0.5, a_max=0.5)]
    made += [applied(builder, f"broadcast_{name}", [x, positive]) for name in ("add", "div", "minimum")]
    made += [applied(builder, "add_n", [x, positive, x])]
    made += [applied(builder, "softmax", [x], temperature=2.0), applied(builder, "log_softmax", [x])]
    reduced = [applied(builder, name, [x], axis=(1,), keepdims=True) for name in ("sum", "mean", "max", "min")]
    reduced += [applied(builder, name, [x], axis=1, keepdims=True) for name in ("argmax", "argmin")]
    dense = applied(builder, "FullyConnected", [x, weight, bias], num_hidden=4)
    joined = applied(builder, "Concat", [*made, *reduced, dense], dim=1)
    column, row = (applied(builder, "expand_dims", [x], axis=axis) for axis in (2, 1))
    product = applied(builder, "batch_dot", [column, row])
    return builder.graph([joined, applied(builder, "transpose", [product], axes=(0, 2, 1))])


def test_the_float_tail_is_behind(model: QuantizedModel, tmp_path: Path) -> None:
    (output,) = model.outputs
    whole = replace(model, postprocess=tail(output.shape, output.name))
    whole.to_onnx(tmp_path / "net.onnx", batch="any", ends="float")
    x = np.random.default_rng(0).standard_normal((4, *model.inputs[0].shape[1:])).astype(np.float32)
    sized = whole.rebatched(4)
    real = model.dequantize_outputs(sized.graph.evaluate(model.quantize_inputs(x)))
    assert sized.postprocess is not None
    expected = sized.postprocess.evaluate({output.name: real[0]})
    for a, b in zip(run(onnx.load(tmp_path / "net.onnx"), {"x": x}), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_what_has_no_form_is_listed(model: QuantizedModel, tmp_path: Path) -> None:
    (output,) = model.outputs
    builder = GraphBuilder()
    x = builder.input(output.name, TensorType(output.shape))
    rows = builder.apply(find_operator("mish")(), [x], "odd")
    whole = replace(model, postprocess=builder.graph([rows]))
    with pytest.raises(UnsupportedOperatorError, match=r"mish of float32 \(1: odd\).*--ends integer"):
        whole.to_onnx(tmp_path / "net.onnx", ends="float")
    with pytest.raises(ConfigError, match="integer or float"):
        model.to_onnx(tmp_path / "net.onnx", ends="real")  # type: ignore[arg-type]
    model.save(tmp_path / "saved")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "saved"), "--format", "c", "--ends", "float"])
    assert done.exit_code == 1 and "--ends" in done.stderr
