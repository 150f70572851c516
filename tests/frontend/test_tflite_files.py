"""TFLite files as a whole: weights in other forms, names, batches, constants, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tflite_files import File, interpreted, random

import mrt
from mrt.errors import GraphError, ModelFileError, MRTError, UnsupportedOperatorError
from mrt.frontend import from_tflite, load_model
from mrt.frontend.formats import format_of

IMAGE, WEIGHT, BIAS = random(1, 6, 6, 3), random(4, 3, 3, 3, seed=1), random(4, seed=2)
CONV = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}


def conv_file(weight: int | None = None, file: File | None = None, **output: object) -> bytes:
    """A convolution with a relu; `weight` is the number of its weight's tensor."""
    file = file or File()
    data = file.input(IMAGE.shape)
    weight = file.constant(WEIGHT) if weight is None else weight
    result = file.tensor((1, 6, 6, 4), **output)
    inputs = [data, weight, file.constant(BIAS)]
    file.operator("CONV_2D", inputs, [result], "Conv2DOptions", **CONV, FusedActivationFunction=1)
    return file.write([result])


def run(content: bytes, *values: np.ndarray) -> list[np.ndarray]:
    graph = from_tflite(content)
    return graph.evaluate({symbol.name: value for symbol, value in zip(graph.inputs, values, strict=True)})


# Weights in other forms


@pytest.mark.parametrize("zero_points", [None, [0] * 4, [3, -1, 0, 7]])
@pytest.mark.parametrize("axis", [0, None])
def test_integer_weights_stand_for_real_ones(axis: int | None, zero_points: list[int] | None) -> None:
    """scale (q - zero point), one pair for each index of an axis or for all."""
    stored = np.random.default_rng(3).integers(-127, 128, WEIGHT.shape).astype(np.int8)
    count = 4 if axis == 0 else 1
    scales = [0.01, 0.5, 0.003, 0.02][:count]
    zeros = zero_points and zero_points[:count]
    told = {"scales": scales, "axis": axis or 0} | ({"zero_points": zeros} if zeros else {})
    file = File()
    found = run(conv_file(file.constant(stored, **told), file), IMAGE)
    column = (-1, 1, 1, 1)
    real = np.asarray(scales).reshape(column) * (stored - np.asarray(zeros or [0] * count, float).reshape(column))
    file = File()
    expected = run(conv_file(file.constant(real.astype(np.float32)), file), IMAGE)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "told"), [("float16", {}), ("int8", {"scales": [0.25], "zero_points": [1]})])
def test_weights_behind_dequantize(dtype: str, told: dict[str, list[float]]) -> None:
    stored = np.round(WEIGHT * 10).astype(dtype)
    file = File()
    small, large = file.constant(stored, **told), file.tensor(WEIGHT.shape)
    file.operator("DEQUANTIZE", [small], [large], "DequantizeOptions")
    content = conv_file(large, file)
    assert "DEQUANTIZE" not in str(from_tflite(content))
    np.testing.assert_allclose(run(content, IMAGE)[0], interpreted_or(content, stored, told), rtol=1e-4, atol=1e-4)


def interpreted_or(content: bytes, stored: np.ndarray, told: dict[str, list[float]]) -> np.ndarray:
    """The convolution with the real numbers that the weights stand for, stored as float32."""
    file = File()
    real = stored.astype(np.float32)
    if told:
        real = (real - told["zero_points"][0]) * told["scales"][0]
    return run(conv_file(file.constant(real.astype(np.float32)), file), IMAGE)[0]


def test_a_weight_that_two_read_is_one_parameter() -> None:
    file = File()
    data, weight = file.input((2, 6)), file.constant(random(6, 6))
    outputs = [file.tensor((2, 6)) for _ in range(2)]
    for output in outputs:
        file.operator("FULLY_CONNECTED", [data, weight, -1], [output], "FullyConnectedOptions")
    graph = from_tflite(file.write(outputs))
    assert list(graph.parameters) == ["t1"]


def test_a_bias_that_is_added_becomes_one() -> None:
    file = File()
    data, product, result = file.input((2, 4, 6)), file.tensor((2, 4, 5)), file.tensor((2, 4, 5))
    matrix, bias = random(5, 6), random(5)
    file.operator(
        "FULLY_CONNECTED", [data, file.constant(matrix)], [product], "FullyConnectedOptions", KeepNumDims=True
    )
    file.operator("ADD", [product, file.constant(bias)], [result], "AddOptions")
    content = file.write([result])
    assert dict(from_tflite(content).count_operators()) == {"FullyConnected": 1}
    x = random(2, 4, 6, seed=9)
    np.testing.assert_allclose(run(content, x)[0], x @ matrix.T + bias, rtol=1e-5, atol=1e-5)


def test_a_convolution_without_options_has_the_defaults_of_the_schema() -> None:
    """A stride of 0, which no convolution has: the file is refused rather than guessed at."""
    file = File()
    data, result = file.input(IMAGE.shape), file.tensor((1, 6, 6, 4))
    file.operator("CONV_2D", [data, file.constant(WEIGHT), file.constant(BIAS)], [result])
    with pytest.raises(GraphError, match="StrideH and StrideW are"):
        from_tflite(file.write([result]))


# Channels last


def residual(file: File, data: int, channels: int) -> int:
    """conv, relu, a slice, a pad, a repeated row, prelu, concat and an average, as networks with the channels last."""
    last, wide = file.tensor((1, 6, 6, channels)), file.tensor((1, 6, 6, 2 * channels))
    weight = file.constant(random(channels, 3, 3, channels, seed=4))
    bias = file.constant(random(channels, seed=5))
    file.operator("CONV_2D", [data, weight, bias], [last], "Conv2DOptions", **CONV, FusedActivationFunction=1)
    scaled, cut = file.tensor((1, 6, 6, channels)), file.tensor((1, 4, 6, channels))
    file.operator("MUL", [last, file.constant(random(channels, seed=6))], [scaled], "MulOptions")
    entries = [file.constant(np.asarray(values, np.int32)) for values in ((0, 1, 0, 0), (0, -1, 0, 0), (1, 1, 1, 1))]
    file.operator("STRIDED_SLICE", [scaled, *entries], [cut], "StridedSliceOptions", BeginMask=13, EndMask=13)
    padded, slope = file.tensor((1, 6, 6, channels)), file.constant(random(1, 1, channels, seed=7))
    widths = file.constant(np.asarray([[0, 0], [1, 1], [0, 0], [0, 0]], np.int32))
    file.operator("PAD", [cut, widths], [padded])
    bent = file.tensor((1, 6, 6, channels))
    file.operator("PRELU", [padded, slope], [bent])
    file.operator("CONCATENATION", [bent, last], [wide], "ConcatenationOptions", Axis=3)
    twice, taken = file.tensor((1, 6, 6, 4 * channels)), file.tensor((1, 6, 6, channels))
    file.operator("TILE", [wide, file.constant(np.asarray([1, 1, 1, 2], np.int32))], [twice])
    indices = file.constant(np.asarray([3, 1, 0, 11][:channels], np.int32))
    file.operator("GATHER", [twice, indices], [taken], "GatherOptions", Axis=3)
    result = file.tensor((1, 6, 6, channels))
    file.operator("MINIMUM", [taken, file.constant(np.float32(1))], [result])
    return result


def network() -> bytes:
    file = File()
    data = file.input((1, 6, 6, 3), name="image")
    pooled, flat = file.tensor((1, 1, 1, 3)), file.tensor((1, 3), name="scores")
    last = residual(file, residual(file, data, 3), 3)
    file.operator(
        "AVERAGE_POOL_2D",
        [last],
        [pooled],
        "Pool2DOptions",
        **{"Padding": 1, "StrideH": 6, "StrideW": 6, "FilterHeight": 6, "FilterWidth": 6},
    )
    file.operator("RESHAPE", [pooled, file.constant(np.asarray([1, -1], np.int32))], [flat], "ReshapeOptions")
    return file.write([flat])


def test_a_network_is_transposed_once() -> None:
    graph = from_tflite(network())
    assert [symbol.inputs[0].name for symbol in graph.operators if symbol.operator.op == "transpose"] == ["image"]
    assert graph.count_operators()["Convolution"] == 2
    assert [symbol.name for symbol in graph.outputs] == ["scores"]


def test_a_network_gives_what_tensorflow_gives() -> None:
    (expected,) = interpreted(network(), [IMAGE])
    np.testing.assert_allclose(run(network(), IMAGE)[0], expected, rtol=1e-5, atol=1e-5)


# Names, batches, operators that no output needs


def test_names_are_the_tensors_own() -> None:
    file = File()
    data, hidden, result = file.input((2,), name="x;y"), file.tensor((2,), name="a/b"), file.tensor((2,), name="a/b")
    file.operator("EXP", [data], [hidden])
    file.operator("RELU", [hidden], [result])
    graph = from_tflite(file.write([result]))
    assert [symbol.name for symbol in graph.symbols] == ["x;y", "a/b", "a/b_1"]


def test_only_the_batch_may_be_dynamic() -> None:
    def content(signature: list[int], data: tuple[int, ...] = (1, 4)) -> bytes:
        file = File()
        number, result = file.input(data, signature=signature), file.tensor(data, signature=signature)
        file.operator("EXP", [number], [result])
        return file.write([result])

    assert from_tflite(content([-1, 4]), batch=5).outputs[0].shape == (5, 4)
    assert from_tflite(content([1, 4]), batch=5).outputs[0].shape == (1, 4)
    with pytest.raises(GraphError, match="input t0 has the dynamic axis 1"):
        from_tflite(content([-1, -1], (1, 1)))
    with pytest.raises(GraphError, match="batch is 0"):
        from_tflite(content([-1, 4]), batch=0)


def test_operators_that_no_output_needs_are_dropped() -> None:
    file = File()
    data, result, other = file.input((2,)), file.tensor((2,)), file.tensor((2,))
    file.operator("COS", [data], [other])
    file.operator("EXP", [data], [result])
    assert dict(from_tflite(file.write([result])).count_operators()) == {"exp": 1}


def test_an_output_may_be_an_input_or_a_constant() -> None:
    file = File()
    data = file.input((2,))
    graph = from_tflite(file.write([data, file.constant(np.float32([1, 2, 3]))]))
    found = graph.evaluate({"t0": np.float32([5, 6])})
    assert [value.tolist() for value in found] == [[5, 6], [1, 2, 3]]


# Constants


def test_shapes_are_computed_while_reading() -> None:
    """SHAPE, its parts and products, as converters write a reshape of a dynamic batch."""
    file = File()
    data = file.input((2, 3, 4), signature=[-1, 3, 4])
    shape, first, rest = file.tensor((3,), "int32"), file.tensor((), "int32"), file.tensor((2,), "int32")
    file.operator("SHAPE", [data], [shape], "ShapeOptions", OutType=2)
    entries = [file.constant(np.asarray([value], np.int32)) for value in (0, 1, 1)]
    file.operator("STRIDED_SLICE", [shape, *entries], [first], "StridedSliceOptions", ShrinkAxisMask=1)
    entries = [file.constant(np.asarray([value], np.int32)) for value in (1, 3, 1)]
    file.operator("STRIDED_SLICE", [shape, *entries], [rest], "StridedSliceOptions")
    size, target = file.tensor((), "int32"), file.tensor((2,), "int32")
    file.operator("REDUCE_PROD", [rest, file.constant(np.int32([0]))], [size], "ReducerOptions")
    file.operator("PACK", [first, size], [target], "PackOptions", ValuesCount=2)
    result = file.tensor((2, 12), signature=[-1, 12])
    file.operator("RESHAPE", [data, target], [result], "ReshapeOptions")
    graph = from_tflite(file.write([result]), batch=5)
    assert dict(graph.count_operators()) == {"Flatten": 1}
    assert graph.outputs[0].shape == (5, 12)
    assert not graph.parameters


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        ("FLOOR_DIV", [np.int32([7, -7]), np.int32([2, 2])], np.int32([3, -4])),
        ("FLOOR_MOD", [np.int32([7, -7]), np.int32([4, 4])], np.int32([3, 1])),
        ("REDUCE_ANY", [np.asarray([[True, False], [False, False]]), np.int32([1])], np.asarray([True, False])),
        ("REDUCE_ALL", [np.asarray([[True, False], [True, True]]), np.int32([1])], np.asarray([False, True])),
        ("BITWISE_XOR", [np.int32([5, 6]), np.int32([3, 3])], np.int32([6, 5])),
        ("RIGHT_SHIFT", [np.int32([7, -8]), np.int32([1, 2])], np.int32([3, -2])),
        ("BROADCAST_ARGS", [np.int32([3, 1]), np.int32([2, 1, 4])], np.int32([2, 3, 4])),
        ("WHERE", [np.asarray([[True, False], [True, True]])], np.int64([[0, 0], [1, 0], [1, 1]])),
        (
            "SCATTER_ND",
            [np.int32([[2], [0], [2]]), np.float32([[1, 2], [3, 4], [5, 6]]), np.int32([3, 2])],
            np.float32([[3, 4], [0, 0], [6, 8]]),
        ),
        ("RANGE", [np.int32(1), np.int32(8), np.int32(3)], np.int32([1, 4, 7])),
        ("RANGE", [np.float32(1), np.float32(0), np.float32(-0.5)], np.float32([1, 0.5])),
        ("FILL", [np.int32([2, 2]), np.float32(1.5)], np.full((2, 2), 1.5, np.float32)),
        ("ZEROS_LIKE", [np.float32([3, 4])], np.float32([0, 0])),
        ("RANK", [np.float32([[3, 4]])], np.int32(2)),
        ("LOGICAL_AND", [np.asarray([True, True]), np.asarray([True, False])], np.asarray([True, False])),
        ("LOGICAL_OR", [np.asarray([False, False]), np.asarray([True, False])], np.asarray([True, False])),
        ("LOGICAL_NOT", [np.asarray([True, False])], np.asarray([False, True])),
        ("ADD", [np.int32([2**30]), np.int32([7])], np.int32([2**30 + 7])),
        ("CAST", [np.float32([1.75, -1.75])], np.int32([1, -1])),
        ("GREATER", [np.int32([1, 2]), np.int32([2, 1])], np.asarray([False, True])),
    ],
)
def test_constants_are_computed(kind: str, inputs: list[np.ndarray], expected: np.ndarray) -> None:
    file = File()
    numbers = [file.constant(value) for value in inputs]
    result = file.tensor(expected.shape, expected.dtype.name)
    file.operator(kind, numbers, [result])
    graph = from_tflite(file.write([result]))
    assert not graph.operators
    np.testing.assert_array_equal(graph.evaluate({})[0], expected)


# Refusals


def test_operators_that_are_not_covered_are_listed_at_once() -> None:
    file = File()
    data, waves, more = file.input((2,)), file.tensor((2,)), file.tensor((2,))
    result = file.tensor((2,), name="last")
    file.operator("RFFT2D", [data], [waves])
    file.operator("RFFT2D", [waves], [more])
    file.operator("CUSTOM Mine", [more], [result])
    with pytest.raises(UnsupportedOperatorError, match=r"2 operators not covered: RFFT2D ×2 .*CUSTOM Mine ×1 \(last\)"):
        from_tflite(file.write([result]))


@pytest.mark.parametrize(
    ("dtype", "scales", "said"),
    [
        ("int8", [0.1, 0.2], "tensor t1 is computed as INT8 with 2 scales"),
        ("int32", [0.1], "tensor t1 is computed as INT32"),
        ("int8", [0.0], r"t1 \(INT8\): scale 0.0, zero point 0"),
    ],
)
def test_integers_that_are_not_read(dtype: str, scales: list[float], said: str) -> None:
    file = File()
    data, hidden, result = file.input((2,)), file.tensor((2,), dtype, scales=scales), file.tensor((2,))
    file.operator("QUANTIZE", [data], [hidden])
    file.operator("DEQUANTIZE", [hidden], [result])
    with pytest.raises(MRTError, match=said):
        from_tflite(file.write([result]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"Padding": 7}, "Padding is number 7"),
        ({"FusedActivationFunction": 5}, "FusedActivationFunction is SIGN_BIT"),
        ({"FusedActivationFunction": 77}, "FusedActivationFunction is number 77"),
        ({"StrideH": 0}, "StrideH and StrideW are"),
        ({"DilationWFactor": -3}, "DilationHFactor and DilationWFactor are"),
    ],
)
def test_options_that_are_not_covered(options: dict[str, int], said: str) -> None:
    file = File()
    data, result = file.input(IMAGE.shape), file.tensor((1, 6, 6, 4))
    inputs = [data, file.constant(WEIGHT), file.constant(BIAS)]
    file.operator("CONV_2D", inputs, [result], "Conv2DOptions", **CONV | options)
    with pytest.raises((GraphError, UnsupportedOperatorError), match=said):
        from_tflite(file.write([result]))


def test_options_of_another_operator() -> None:
    file = File()
    data, result = file.input(IMAGE.shape), file.tensor((1, 6, 6, 4))
    file.operator("CONV_2D", [data, file.constant(WEIGHT)], [result], "Pool2DOptions", StrideH=1, StrideW=1)
    with pytest.raises(GraphError, match="has Pool2DOptions; Conv2DOptions are needed"):
        from_tflite(file.write([result]))


def test_a_result_has_the_shape_that_the_file_says() -> None:
    file = File()
    data, result = file.input((2, 3)), file.tensor((3, 2))
    file.operator("EXP", [data], [result])
    with pytest.raises(GraphError, match=r"t1 has shape \(2, 3\); the file says \(3, 2\)"):
        from_tflite(file.write([result]))


# Files


def test_the_format_is_told_by_the_content(tmp_path: Path) -> None:
    for name in ("model.tflite", "model.bin", "model.onnx"):
        (tmp_path / name).write_bytes(conv_file())
        assert format_of(tmp_path / name).name == "tflite"
        assert load_model(tmp_path / name).outputs[0].shape == (1, 6, 6, 4)
        assert mrt.from_tflite(tmp_path / name).outputs[0].shape == (1, 6, 6, 4)
    (tmp_path / "damaged.tflite").write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="is no TFLite model"):
        load_model(tmp_path / "damaged.tflite")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        from_tflite(tmp_path / "none.tflite")
    with pytest.raises(ModelFileError, match="is a folder"):
        from_tflite(tmp_path)


def test_a_missing_package_is_named() -> None:
    """And `import mrt` loads neither it nor TVM."""
    code = """
import sys
import mrt, mrt.frontend
assert not {"tflite", "tvm"} & set(sys.modules), "loaded"
sys.modules["tflite"] = None
try:
    mrt.from_tflite(b"")
except mrt.MRTError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'mrt-quantizer[tflite]'" in done.stdout


def test_reading_loads_no_tvm() -> None:
    code = f"""
import sys
import mrt
mrt.from_tflite(bytes.fromhex("{conv_file().hex()}"))
assert "tvm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
