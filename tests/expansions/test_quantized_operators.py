"""Every operator that ONNX quantizes: its integers between two quantizers are those that ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mrt
from mrt.frontend.onnx import from_onnx
from mrt.symbol import Array

SHAPE = (2, 4, 7, 6)
SCALES = {"x": 0.0213371, "z": 0.0371933}
ZEROS = {"x": 119, "z": 140}
BINARY = {"x": 2.0**-6, "z": 2.0**-5}
"""Scales with which float32 computes without error, so that halves are halves."""


@dataclass(frozen=True)
class Case:
    """One operator on quantized tensors, and the quantizer behind it.

    inputs: its data, by name with their shapes. scales: of these. weights: constants that are quantized for each output
    channel, by name with the axis of these. constants: others. out: the scale and the zero point of the result.
    """

    op: str
    out: tuple[float, int]
    inputs: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"x": SHAPE})
    scales: Mapping[str, float] = field(default_factory=lambda: SCALES)
    weights: Mapping[str, tuple[Sequence[int], int]] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)


TWO = {"x": SHAPE, "z": SHAPE}
NO_ROI = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 3], np.float32)}
FINER = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 1.7, 2], np.float32)}
LIMITS = {"lo": np.float32(-0.7), "hi": np.float32(1.9)}
CASES = {
    "Conv": Case(
        "Conv",
        (0.041, 90),
        weights={"w": ((6, 2, 3, 3), 0), "b": ((6,), 0)},
        attributes={"pads": [1, 0, 1, 2], "group": 2, "strides": [2, 1]},
    ),
    "ConvTranspose": Case(
        "ConvTranspose",
        (0.05, 130),
        weights={"w": ((4, 5, 3, 3), 1), "b": ((5,), 0)},
        attributes={"strides": [2, 2], "pads": [1, 1, 0, 0]},
    ),
    "Gemm": Case(
        "Gemm", (0.06, 128), {"x": (3, 20)}, weights={"w": ((8, 20), 0), "b": ((8,), 0)}, attributes={"transB": 1}
    ),
    "Gemm with factors": Case(
        "Gemm",
        (0.03, 128),
        {"x": (30, 20)},
        weights={"w": ((8, 20), 0), "b": ((8,), 0)},
        attributes={"transB": 1, "alpha": 0.37, "beta": 2.0},
    ),
    "MatMul": Case("MatMul", (0.06, 128), {"x": (3, 5, 20)}, weights={"w": ((20, 8), 1)}),
    "MatMul of tensors": Case("MatMul", (0.11, 100), {"x": (2, 5, 9), "z": (2, 9, 4)}),
    "Add": Case("Add", (0.043, 131), TWO),
    "Add of channels": Case("Add", (0.043, 131), {"x": SHAPE, "z": (2, 4, 1, 1)}),
    "Add of a constant": Case("Add", (0.033, 101), constants={"c": np.array(0.517, np.float32)}),
    "Sub": Case("Sub", (0.039, 99), TWO),
    "Mul": Case("Mul", (0.081, 133), TWO),
    "AveragePool": Case(
        "AveragePool", (0.017, 118), attributes={"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}
    ),
    "AveragePool with halves": Case("AveragePool", (2.0**-6, 119), scales=BINARY, attributes={"kernel_shape": [2, 2]}),
    "Add with halves": Case("Add", (2.0**-4, 131), TWO, BINARY),
    "Relu with halves": Case("Relu", (2.0**-4, 3), scales=BINARY),
    "GlobalAveragePool": Case("GlobalAveragePool", (0.0042, 117), {"x": (8, 16, 7, 6)}),
    "ReduceMean": Case("ReduceMean", (0.0042, 117), {"x": (8, 16, 7, 6)}, attributes={"axes": [2, 3]}),
    "MaxPool": Case("MaxPool", (0.017, 60), attributes={"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    "Concat": Case("Concat", (0.033, 120), TWO, attributes={"axis": 1}),
    "Relu": Case("Relu", (0.0113, 0)),
    "Clip": Case("Clip", (0.0103, 68), constants=LIMITS),
    "LeakyRelu": Case("LeakyRelu", (0.0117, 24), attributes={"alpha": 0.1}),
    "PRelu": Case(
        "PRelu", (0.0117, 24), constants={"slope": np.array([0.1, 0.3, -0.2, 0.7], np.float32).reshape(4, 1, 1)}
    ),
    "HardSwish": Case("HardSwish", (0.0127, 32)),
    "Sigmoid": Case("Sigmoid", (1 / 256, 0)),
    "Tanh": Case("Tanh", (1 / 128, 128)),
    "Resize": Case("Resize", (0.019, 110), constants=NO_ROI, attributes={"mode": "nearest"}),
    "Resize by interpolation": Case("Resize", (0.0197, 110), constants=FINER, attributes={"mode": "linear"}),
    "Resize by other fractions": Case("Resize", (0.0197, 110), constants=FINER, attributes={"mode": "cubic"}),
    "Softmax": Case("Softmax", (1 / 256, 0), {"x": (6, 10)}, attributes={"axis": 1}),
    "Transpose": Case("Transpose", (0.03, 128), attributes={"perm": [0, 2, 3, 1]}),
    "Pad": Case("Pad", (0.03, 128), constants={"pads": np.array([0, 0, 1, 0, 0, 0, 0, 2])}),
}

TWO_MAPS = ("Resize by interpolation", "Resize by other fractions")
"""What maps one axis after the other, with 16 bits between."""


def model_of(case: Case) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    constants: dict[str, Array] = dict(case.constants)
    nodes: list[onnx.NodeProto] = []

    def pair(data: str, name: str) -> str:
        parameters = [f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("QuantizeLinear", [data, *parameters], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *parameters], [f"{name}_real"]))
        return f"{name}_real"

    read = {}
    for name in case.inputs:
        constants |= {f"{name}_scale": np.float32(case.scales[name]), f"{name}_zero": np.uint8(ZEROS[name])}
        read[name] = pair(name, name)
    for name, (shape, axis) in case.weights.items():
        channels = shape[axis]
        scales = rng.uniform(0.004, 0.006, channels).astype(np.float32)
        if name == "b":
            stored = rng.integers(-9000, 9000, shape).astype(np.int32)
            scales = constants["w_scale"] * np.float32(case.scales["x"])
        else:
            stored = rng.integers(-127, 128, shape).astype(np.int8)
        constants |= {name: stored, f"{name}_scale": scales, f"{name}_zero": np.zeros(channels, stored.dtype)}
        parameters = [name, f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("DequantizeLinear", parameters, [f"{name}_real"], axis=axis))
        read[name] = f"{name}_real"
    nodes.append(helper.make_node(case.op, [*read.values(), *case.constants], ["result"], **case.attributes))
    constants |= {"y_scale": np.float32(case.out[0]), "y_zero": np.uint8(case.out[1])}
    pair("result", "y")
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in case.inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array], fused: bool) -> Array:
    """As its operators in float32, or with those of integers that it makes of them."""
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if fused else levels.ORT_DISABLE_ALL
    # Where pairs of products of uint8 and int8 would saturate at 16 bits, int8 is computed another way.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


@pytest.mark.parametrize("name", CASES)
def test_integers_between_two_quantizers_are_those_of_onnx_runtime(name: str) -> None:
    """One in the last place at most, and that seldom: ONNX Runtime requantizes in float32. Halves go to even."""
    case = CASES[name]
    proto = model_of(case)
    model = mrt.quantize(from_onnx(proto))
    assert model.certificate.max_bits <= 32
    assert any("anew" in note for note in model.notes) == (name in TWO_MAPS)
    rng = np.random.default_rng(4)
    feeds = {n: rng.uniform(-2.6, 2.9, shape).astype(np.float32) for n, shape in case.inputs.items()}
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(feeds)))
    for fused in (False, True):
        steps = np.abs(found - onnx_runtime(proto, feeds, fused)) / case.out[0]
        assert steps.max() < 1.001
        if case.scales is not BINARY:
            assert np.mean(steps > 0.5) <= 0.01
        elif not fused:
            # What it makes of integers rounds halves by rules of its own.
            assert not steps.any()
