"""What MXNet's operators become, against NumPy, where the fixtures of real MXNet do not reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from mxnet_files import random, symbol_json

from mrt.errors import ModelFileError
from mrt.frontend import from_mxnet
from mrt.symbol import Graph

Array = np.ndarray[Any, Any]


def read(
    op: str, arrays: Mapping[str, Array], parameters: Mapping[str, Array] | None = None, **attributes: str
) -> Graph:
    """The graph of one operator on inputs and then parameters."""
    names = [*arrays, *(parameters or {})]
    nodes = [("null", name, []) for name in names]
    text = symbol_json(*nodes, (op, "y", [[place, 0] for place in range(len(names))], attributes))
    return from_mxnet(text, parameters or {}, {name: array.shape for name, array in arrays.items()})


def run(
    op: str, arrays: Mapping[str, Array], parameters: Mapping[str, Array] | None = None, **attributes: str
) -> Array:
    return read(op, arrays, parameters, **attributes).evaluate(arrays)[0]


X = random(2, 4, 6, 6)


def test_powers_of_tensors() -> None:
    exponents = np.float32([[[2.0]], [[0.5]], [[1.0]], [[-1.0]]])
    base = np.abs(X) + np.float32(0.5)
    found = run("broadcast_power", {"x": base}, {"p": exponents[None]})
    np.testing.assert_allclose(found, base**exponents, rtol=1e-5)


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("convention", ["valid", "full"])
@pytest.mark.parametrize("pad", ["(1, 1)", "(0, 0)"])
def test_first_pooling_pads_with_zeros_that_count(kind: str, convention: str, pad: str) -> None:
    data = random(1, 2, 6, 6) - 3  # all below 0, so that a border of zeros is the maximum
    attributes = {"kernel": "(3, 3)", "stride": "(2, 2)", "pool_type": kind, "pooling_convention": convention}
    width = int(pad[1])
    bordered = np.pad(data, [(0, 0), (0, 0), (width, width), (width, width)])
    side = bordered.shape[2]
    count = (side - 3) // 2 + 1 if convention == "valid" else -(-(side - 3) // 2) + 1
    reduce: dict[str, Callable[[Array], float]] = {"max": np.max, "sum": np.sum, "avg": lambda w: w.sum() / 9}
    expected = [
        [
            [[reduce[kind](c[2 * i : 2 * i + 3, 2 * j : 2 * j + 3]) for j in range(count)] for i in range(count)]
            for c in n
        ]
        for n in bordered
    ]
    result = run("Pooling_v1", {"x": data}, pad=pad, **attributes)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_first_pooling_over_everything() -> None:
    result = run("Pooling_v1", {"x": X}, kernel="(2, 2)", pad="(1, 1)", global_pool="True", pool_type="avg")
    np.testing.assert_allclose(result, X.mean(axis=(2, 3), keepdims=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_last(groups: int) -> None:
    """A channels-last network is the channels-first one of ONNX Runtime, without transposes between its layers."""
    weight, bias = random(6, 3, 3, 4 // groups), random(6)
    data = np.ascontiguousarray(np.moveaxis(X, 1, -1))
    kernel = {"kernel": "(3, 3)", "layout": "NHWC"}
    text = symbol_json(
        ("null", "x", []),
        ("null", "w", []),
        ("null", "b", []),
        ("Convolution", "c", [[0, 0], [1, 0], [2, 0]], {**kernel, "num_filter": "6", "num_group": str(groups)}),
        ("Activation", "a", [[3, 0]], {"act_type": "relu"}),
        ("Pooling", "p", [[4, 0]], {"kernel": "(2, 2)", "stride": "(2, 2)", "layout": "NHWC"}),
    )
    graph = from_mxnet(text, {"w": weight, "b": bias}, {"x": data.shape})
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], group=groups),
        make("Relu", ["c"], ["a"]),
        make("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    tensors = {"w": np.ascontiguousarray(np.moveaxis(weight, -1, 1)), "b": bias}
    types = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "p")]
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", types[:1], types[1:], stored),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    result = graph.evaluate({"x": data})[0]
    np.testing.assert_allclose(result, np.moveaxis(expected, 1, -1), rtol=1e-5, atol=1e-5)
    assert graph.count_operators()["transpose"] == 2


def test_batch_norm_whose_statistics_are_no_inputs() -> None:
    """Files before MXNet 0.9 do not name them; fix_gamma, the default, makes gamma 1."""
    vectors = {
        name: np.abs(random(4, seed=seed)) for seed, name in enumerate(("g", "b", "y_moving_mean", "y_moving_var"))
    }
    names = ("g", "b")
    nodes = [("null", "x", []), *(("null", name, []) for name in names)]
    text = symbol_json(*nodes, ("BatchNorm", "y", [[0, 0], [1, 0], [2, 0]], {"momentum": "0.9"}), key="param")
    graph = from_mxnet(text, {f"aux:{name}": array for name, array in vectors.items()}, {"x": X.shape})
    beta, mean, variance = (vectors[name][:, None, None] for name in ("b", "y_moving_mean", "y_moving_var"))
    expected = (X - mean) / np.sqrt(variance + 1e-3) + beta
    np.testing.assert_allclose(graph.evaluate({"x": X})[0], expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelFileError, match="parameter y_moving_var is missing"):
        from_mxnet(text, {name: vectors[name] for name in ("g", "b", "y_moving_mean")}, {"x": X.shape})


def _softmax(x: Array, axis: int | tuple[int, ...]) -> Array:
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(axis=axis, keepdims=True)


HEADS: list[tuple[str, dict[str, str], Callable[[Array], Array]]] = [
    ("SoftmaxOutput", {}, lambda x: _softmax(x, (1, 2, 3))),
    ("Softmax", {"grad_scale": "1"}, lambda x: _softmax(x, (1, 2, 3))),
    ("SoftmaxOutput", {"multi_output": "True"}, lambda x: _softmax(x, 1)),
    ("SoftmaxOutput", {"preserve_shape": "True"}, lambda x: _softmax(x, -1)),
    ("SoftmaxActivation", {}, lambda x: _softmax(x, (1, 2, 3))),
    ("SoftmaxActivation", {"mode": "channel"}, lambda x: _softmax(x, 1)),
    ("LogisticRegressionOutput", {"grad_scale": "2"}, lambda x: 1 / (1 + np.exp(-x.astype(np.float64)))),
    *((op, {}, lambda x: x) for op in ("LinearRegressionOutput", "MAERegressionOutput", "SVMOutput", "MakeLoss")),
    *((op, {}, lambda x: x) for op in ("make_loss", "BlockGrad", "stop_gradient", "IdentityAttachKLSparseReg")),
]


@pytest.mark.parametrize(("op", "attributes", "expected"), HEADS)
def test_training_heads(op: str, attributes: dict[str, str], expected: Callable[[Array], Array]) -> None:
    np.testing.assert_allclose(run(op, {"x": X}, **attributes), expected(X), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "compare"),
    [
        ("equal", np.equal),
        ("not_equal", np.not_equal),
        ("greater", np.greater),
        ("greater_equal", np.greater_equal),
        ("lesser", np.less),
        ("lesser_equal", np.less_equal),
    ],
)
def test_comparisons(name: str, compare: Callable[..., Array]) -> None:
    """Also of numbers that lie as near to each other as float32 has them, and of the smallest."""
    x = np.array(
        [[0.1, 0.1, -2.5, 1e-45, 0.0, 1e38], [1.5, np.nextafter(np.float32(1.5), 2), 0, -0.0, 0.1, -1e38]], "f4"
    )
    rolled = np.roll(x, 1, axis=1)
    np.testing.assert_array_equal(run(f"broadcast_{name}", {"x": x, "z": x[:1]}), compare(x, x[:1]))
    np.testing.assert_array_equal(run(f"_{name}", {"x": x, "z": rolled}), compare(x, rolled))
    for scalar in ("1.5", "0.1", "0"):
        expected = compare(x, np.float32(scalar))
        np.testing.assert_array_equal(run(f"_{name}_scalar", {"x": x}, scalar=scalar), expected)


CROPS: list[tuple[dict[str, str], tuple[int, int]]] = [
    ({"offset": "(1, 2)"}, (1, 2)),
    ({"center_crop": "True"}, (1, 1)),
    ({}, (0, 0)),
]


@pytest.mark.parametrize(("attributes", "begin"), CROPS)
def test_crop(attributes: dict[str, str], begin: tuple[int, int]) -> None:
    expected = X[:, :, begin[0] : begin[0] + 3, begin[1] : begin[1] + 4]
    np.testing.assert_array_equal(run("Crop", {"x": X}, h_w="(3, 4)", **attributes), expected)
    like = read("Crop", {"x": X, "z": random(1, 1, 3, 4)}, num_args="2", **attributes)
    np.testing.assert_array_equal(like.evaluate({"x": X, "z": random(1, 1, 3, 4)})[0], expected)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({"target_shape": "(8, 0)"}, (8, 36)),
        ({"target_shape": "(7, 0)", "keep_highest": "True"}, (2, 144)),
        ({"shape": "()", "target_shape": "(4, 72)"}, (4, 72)),
        ({"shape": "(0, -4, 2, -1, -3)", "target_shape": "(0, 0)"}, (2, 2, 2, 36)),
        ({"shape": "(-1, 0)", "reverse": "True"}, (48, 6)),
    ],
)
def test_reshapes_of_all_versions(attributes: dict[str, str], shape: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(run("Reshape", {"x": X}, **attributes), X.reshape(shape))


@pytest.mark.parametrize("scale", [2, 3])
def test_bilinear_up_sampling_is_a_deconvolution(scale: int) -> None:
    """In the middle of a ramp it continues the ramp, with MXNet's bilinear weight."""
    size = 2 * scale - scale % 2
    centre = (2 * scale - 1 - scale % 2) / (2 * scale)
    taps = 1 - np.abs(np.arange(size) / scale - centre)
    weight = np.broadcast_to(np.outer(taps, taps), (4, 1, size, size)).astype(np.float32)
    ramp = np.broadcast_to(np.arange(6, dtype=np.float32), (2, 4, 6, 6))
    attributes = {"scale": str(scale), "sample_type": "bilinear", "num_filter": "4", "num_args": "2"}
    result = run("UpSampling", {"x": ramp}, {"w": weight}, **attributes)
    assert result.shape == (2, 4, 6 * scale, 6 * scale)
    places = (np.arange(6 * scale) + 0.5) / scale - 0.5
    inside = slice(scale, -scale)
    np.testing.assert_allclose(result[0, 0, inside, inside], np.tile(places[inside], (4 * scale, 1)), atol=1e-5)


def test_up_sampling_of_several_images_that_are_added() -> None:
    small = random(2, 4, 3, 3)
    result = run("UpSampling", {"x": small, "z": X}, scale="2", sample_type="nearest", multi_input_mode="sum")
    np.testing.assert_allclose(result, np.kron(small, np.ones((2, 2))) + X, rtol=1e-6)


@pytest.mark.parametrize("axis", ["1", "-1", "(1, 2)", "()"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_products(axis: str, keepdims: bool) -> None:
    data = random(2, 5, 3) + 2
    axes = {"1": 1, "-1": -1, "(1, 2)": (1, 2), "()": None}[axis]
    expected = np.prod(data.astype(np.float64), axis=axes, keepdims=keepdims)
    np.testing.assert_allclose(
        run("prod", {"x": data}, axis=axis, keepdims=str(keepdims)), expected.reshape(expected.shape or (1,)), rtol=1e-5
    )


def test_norms() -> None:
    for order in (1, 2):
        expected = np.linalg.norm(X.astype(np.float64), order, axis=1)
        np.testing.assert_allclose(run("norm", {"x": X}, ord=str(order), axis="1"), expected, rtol=1e-6)
    np.testing.assert_allclose(run("norm", {"x": X}), [np.linalg.norm(X)], rtol=1e-6)


def test_local_response_normalization() -> None:
    result = run("LRN", {"x": X}, alpha="0.3", beta="0.6", knorm="1.5", nsize="3")
    padded = np.pad(X.astype(np.float64) ** 2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    energy = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    np.testing.assert_allclose(result, X / (1.5 + 0.1 * energy) ** 0.6, rtol=1e-5)


def test_one_hot_of_indices_inside_and_outside() -> None:
    indices = np.array([[-3, -1, 0], [2, 3, 9]], np.float32)
    expected = np.where(indices[..., None] == np.arange(3), 5.0, 0.5)
    np.testing.assert_array_equal(run("one_hot", {"x": indices}, depth="3", on_value="5", off_value="0.5"), expected)


def test_small_forms() -> None:
    z = random(2, 4, 6, 6, seed=1)
    two = {"x": X, "z": z}
    cases: list[tuple[Array, Array]] = [
        (run("_Div", two), X / z),
        (run("_contrib_div_sqrt_dim", {"x": X}), X / np.sqrt(6)),
        (run("LeakyReLU", {"x": X}, act_type="rrelu"), np.where(X > 0, X, X * ((0.125 + 0.334) / 2))),
        (run("softmin", {"x": X}, axis="1"), _softmax(-X, 1)),
        (run("flip", {"x": X}, axis="(1, 3)"), X[:, ::-1, :, ::-1]),
        (run("stack", two, axis="-1", num_args="2"), np.stack([X, z], -1)),
        (run("broadcast_axis", {"x": X[:, :1]}, axis="1", size="4"), np.repeat(X[:, :1], 4, 1)),
        (run("broadcast_like", {"x": X[:, :1], "z": z}), np.repeat(X[:, :1], 4, 1)),
        (run("reshape_like", {"x": X, "z": random(2, 24, 6)}), X.reshape(2, 24, 6)),
        (run("_full", {}, shape="(2, 3)", value="7"), np.full((2, 3), 7.0)),
        (run("Cast", {"x": X}, dtype="int32"), np.trunc(X)),
        (run("amp_cast", {"x": X}, dtype="float16"), X),
        (run("squeeze", {"x": X[:1, :1, :1, :1]}), X[0, 0, 0, :1]),
    ]
    for place, (result, expected) in enumerate(cases):
        assert result.shape == expected.shape, place
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=str(place))


def test_outputs_of_a_split_are_slices() -> None:
    nodes = [("null", "x", []), ("split", "parts", [[0, 0]], {"num_outputs": "3"}), ("relu", "relu", [[1, 1]])]
    x = random(1, 6, 4)
    graph = from_mxnet(symbol_json(*nodes, heads=[[1, 2, 0], [2, 0, 0], [1, 2, 0]]), {}, {"x": x.shape})
    assert [symbol.name for symbol in graph.outputs] == ["parts_output2", "relu", "parts_output2"]
    assert sorted(symbol.op for symbol in graph.operators) == ["relu", "slice_axis", "slice_axis"]
    last, middle, _ = graph.evaluate({"x": x})
    np.testing.assert_array_equal(last, x[:, 4:])
    np.testing.assert_array_equal(middle, np.maximum(x[:, 2:4], 0))


@pytest.mark.parametrize("name", ["cos", "sin", "arctan", "arcsinh", "sinh", "cosh"])
def test_functions_that_numpy_has(name: str) -> None:
    expected = getattr(np, name)(3 * X.astype(np.float64))
    np.testing.assert_allclose(run(name, {"x": 3 * X}), expected, rtol=1e-5, atol=1e-6)


def test_remainder() -> None:
    found = run("_mod_scalar", {"x": 9 * X}, scalar="2.5")
    np.testing.assert_allclose(found, np.mod(9 * X.astype(np.float64), 2.5), rtol=1e-5, atol=1e-5)
