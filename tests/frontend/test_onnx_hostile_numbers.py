"""Attributes and constants of ONNX models that ask for much or fit nothing: one MRTError, in little memory."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hostile import bounded
from hostile_onnx import HUGE, floats, ints, node, refused
from onnx import TensorProto, helper
from onnx_models import make_model, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx


def constant_case(op_type: str, *arrays: np.ndarray, opset: int = 17, **attributes: object) -> onnx.ModelProto:
    """A node on constants alone, its result added to the input."""
    constants = {f"c{place}": np.asarray(array) for place, array in enumerate(arrays)}
    nodes = [
        helper.make_node(op_type, list(constants), ["made"], **attributes),
        node("Cast", "made", "f", to=TensorProto.FLOAT),
        node("Add", "x f", "y"),
    ]
    return make_model(nodes, {"x": (1,)}, constants=constants, opset=opset)


WIDE = np.zeros((1, 2**20), np.float32)
ASKING = {
    "ConstantOfShape": constant_case("ConstantOfShape", ints(2**20, 2**20)),
    "ConstantOfShape of a negative": constant_case("ConstantOfShape", ints(-1)),
    "Expand": constant_case("Expand", WIDE, ints(2**20, 1)),
    "Tile": constant_case("Tile", WIDE, ints(2**20, 1)),
    "Range": constant_case("Range", np.int64(0), np.int64(2**60), np.int64(1)),
    "Range of no step": constant_case("Range", np.float32(0), np.float32(1), np.float32(0)),
    "Range to infinity": constant_case("Range", np.float32(0), np.float32(np.inf), np.float32(1)),
    "OneHot": constant_case("OneHot", ints(*range(1000)), ints(2**50), np.zeros(2, np.float32)),
    "Pad": constant_case("Pad", WIDE, ints(0, 2**50, 0, 0)),
    "Pad of rows": constant_case("Pad", WIDE, ints(2**20, 0, 0, 0), mode="edge"),
    "Add": constant_case("Add", WIDE, WIDE.T),
    "Where": constant_case("Where", WIDE > 0, WIDE.T, WIDE),
    "MatMul": constant_case("MatMul", WIDE.T, WIDE),
    "Gemm": constant_case("Gemm", WIDE, WIDE, transA=1),
    "Gather": constant_case("Gather", WIDE, np.zeros(1000, np.int64), axis=0),
    "GatherND": constant_case("GatherND", WIDE, np.zeros((2**20, 1), np.int64)),
    "ScatterND": constant_case("ScatterND", WIDE[0], np.zeros((2**22, 1), np.int64), np.zeros(2**22, np.float32)),
    "Slice": constant_case("Slice", WIDE, ints(0), ints(1), ints(7)),
    "Reshape": constant_case("Reshape", WIDE, ints(2**40, -1)),
    "Unsqueeze": constant_case("Unsqueeze", WIDE, ints(2**40)),
    "Cast": constant_case("Cast", ints(1), to=2**31 - 1),
    "CumSum": constant_case("CumSum", WIDE, np.int64(9)),
    "Compress": constant_case("Compress", WIDE, np.ones(7, bool), axis=5),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKING)
def test_constants_that_are_asked_for(case: str) -> None:
    refused(ASKING[case], "made|y ", megabytes=128)


def test_constants_that_double() -> None:
    nodes = [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(60)]
    model = make_model([*nodes, node("Add", "x c60", "y")], {"x": (1,)}, constants={"c0": np.zeros(8, np.float32)})
    refused(model, r"c\d+ \(Concat\): cannot be computed .* the result would have about", megabytes=300)


def test_constants_that_are_many() -> None:
    """Each is small enough, all of them together are not."""
    nodes = [node("ConstantOfShape", "size", f"c{i}") for i in range(200)]
    total = node("Sum", " ".join(["x", *(f"c{i}" for i in range(200))]), "y")
    model = make_model([*nodes, total], {"x": (1,)}, constants={"size": ints(2**20)})
    refused(model, "the constants of the model allow", megabytes=300)


def data_case(
    op_type: str, *arrays: object, shape: tuple[int, ...] = (1, 2, 4, 4), opset: int = 17, **attributes: object
) -> onnx.ModelProto:
    """A node on the input `x` and constants after it, None where one is left out."""
    constants = {f"c{i}": np.asarray(array) for i, array in enumerate(arrays) if array is not None}
    names = ["x", *(f"c{i}" if array is not None else "" for i, array in enumerate(arrays))]
    return single(op_type, shape, constants, opset, names, **attributes)


WEIGHT = np.zeros((2, 2, 3, 3), floats)
ON_DATA = {
    "Expand": data_case("Expand", ints(2**20, 2**20, 4, 4)),
    "Expand negative": data_case("Expand", ints(-3, 1, 1, 1)),
    "Tile": data_case("Tile", ints(1, 1, 2**40, 2**40)),
    "Tile short": data_case("Tile", ints(2)),
    "Resize to sizes": data_case("Resize", None, None, ints(1, 2, 2**40, 4)),
    "Resize to no size": data_case("Resize", None, None, ints(1, 2, 0, 4)),
    "Resize by infinity": data_case("Resize", None, np.array([1, 1, np.inf, 1], floats)),
    "Resize by NaN": data_case("Resize", None, np.array([1, 1, np.nan, 1], floats)),
    "Resize by much": data_case("Resize", None, np.array([1, 1, 1e30, 1], floats), mode="linear"),
    "Resize by nothing": data_case("Resize", None, None),
    "Resize in a mode": data_case("Resize", None, np.array([1, 1, 2, 2], floats), mode="best"),
    "Resize cropped": data_case("Resize", None, np.array([1, 1, 2, 2], floats),
                                coordinate_transformation_mode="tf_crop_and_resize"),
    "Resize with aliases": data_case("Resize", None, np.array([1, 1, 1e-30, 1], floats), mode="cubic", antialias=1,
                                     opset=18),
    "Upsample": data_case("Upsample", np.array([1, 1, 1e15, 1], floats), opset=9),
    "Pad": data_case("Pad", ints(0, 0, 0, HUGE, 0, 0, 0, 0)),
    "Pad negative": data_case("Pad", ints(0, 0, 0, -HUGE, 0, 0, 0, 0)),
    "Pad short": data_case("Pad", ints(1, 2, 3)),
    "Pad wrapped": data_case("Pad", ints(0, 0, 0, 2**40, 0, 0, 0, 0), mode="wrap", opset=19),
    "Conv padded": data_case("Conv", WEIGHT, pads=[HUGE] * 4),
    "Conv strided": data_case("Conv", WEIGHT, strides=[0, 1]),
    "Conv strided far": data_case("Conv", WEIGHT, strides=[-HUGE, 1]),
    "Conv dilated": data_case("Conv", WEIGHT, dilations=[HUGE, 1]),
    "Conv in groups": data_case("Conv", WEIGHT, group=0),
    "Conv in negative groups": data_case("Conv", WEIGHT, group=-2),
    "Conv of a kernel": data_case("Conv", WEIGHT, kernel_shape=[HUGE, HUGE]),
    "ConvTranspose": data_case("ConvTranspose", WEIGHT, output_shape=[2**40, 2**40]),
    "ConvTranspose strided": data_case("ConvTranspose", WEIGHT, strides=[2**40, 2**40]),
    "ConvTranspose added": data_case("ConvTranspose", WEIGHT, output_padding=[2**40, 0]),
    "ConvTranspose in groups": data_case("ConvTranspose", WEIGHT, group=0),
    "MaxPool": data_case("MaxPool", kernel_shape=[2**40, 2]),
    "MaxPool padded": data_case("MaxPool", kernel_shape=[2, 2], pads=[2**40] * 4),
    "MaxPool of nothing": data_case("MaxPool"),
    "MaxPool dilated": data_case("MaxPool", kernel_shape=[2**40, 2], dilations=[2, 2]),
    "MaxPool dilated far": data_case("MaxPool", kernel_shape=[2, 2], dilations=[2**40, 2]),
    "MaxPool dilated in padding": data_case("MaxPool", kernel_shape=[2, 2], dilations=[2, 2], pads=[2**40] * 4),
    "AveragePool dilated": data_case("AveragePool", kernel_shape=[1, 2], dilations=[1, 2], pads=[0, 9, 0, 9], opset=19),
    "LpPool": data_case("LpPool", kernel_shape=[2, 2], p=0),
    "Reshape": data_case("Reshape", ints(2**40, -1)),
    "Reshape twice": data_case("Reshape", ints(-1, -1)),
    "Reshape overflowing": data_case("Reshape", ints(2**32, 2**32, 2)),
    "Transpose": data_case("Transpose", perm=[0, 0, 1, 2]),
    "Unsqueeze": data_case("Unsqueeze", ints(HUGE)),
    "Squeeze": data_case("Squeeze", ints(1)),
    "Slice": data_case("Slice", ints(0), ints(2), ints(1), ints(0)),
    "Slice uneven": data_case("Slice", ints(0, 1), ints(2), ints(1)),
    "Split": data_case("Split", ints(HUGE)),
    "Gather": data_case("Gather", ints(-(2**63)), axis=1),
    "Gather of text": data_case("Gather", np.array([0.5], floats), axis=1),
    "Concat": data_case("Concat", np.zeros((1, 9), floats), axis=1),
    "OneHot": data_case("OneHot", np.float32(2**40), np.zeros(2, floats)),
    "OneHot of a half": data_case("OneHot", np.float32(2.5), np.zeros(2, floats)),
    "OneHot of no number": data_case("OneHot", np.float32(np.nan), np.zeros(2, floats)),
    "CumSum": data_case("CumSum", np.int64(1), shape=(1, 2**20)),
    "EyeLike": data_case("EyeLike", shape=(2**15, 2**15)),
    "LRN": data_case("LRN", size=3, shape=(1, 2**20, 1)),
    "LRN of no size": data_case("LRN", size=-(2**40)),
    "Trilu": data_case("Trilu", ints(1), shape=(2**15, 2**15)),
    "Einsum": data_case("Einsum", equation="..."[:2]),
    "Einsum of many": data_case("Einsum", equation="abcde->a"),
    "Einsum to much": data_case("Einsum", equation="abcd->abcdabcd"),
    "Einsum to nothing": data_case("Einsum", equation="abcd->z"),
    "Gemm": data_case("Gemm", np.zeros((4, 4), floats)),
    "MatMul": data_case("MatMul", np.zeros((5, 4), floats)),
    "MatMul of a number": data_case("MatMul", np.float32(1)),
    "BatchNormalization": data_case("BatchNormalization", *[np.zeros(3, floats)] * 4),
    "LayerNormalization": data_case("LayerNormalization", np.zeros(9, floats)),
    "InstanceNormalization": data_case("InstanceNormalization", np.zeros(9, floats), np.zeros(9, floats)),
    "GroupNormalization": data_case("GroupNormalization", *[np.zeros(2, floats)] * 2, num_groups=0, opset=21),
    "DepthToSpace": data_case("DepthToSpace", blocksize=-1),
    "SpaceToDepth": data_case("SpaceToDepth", blocksize=HUGE),
    "ReduceSum": data_case("ReduceSum", ints(HUGE)),
    "ReduceMean": data_case("ReduceMean", axes=[HUGE]),
    "Softmax": data_case("Softmax", axis=HUGE),
    "Flatten": data_case("Flatten", axis=HUGE),
    "ArgMax": data_case("ArgMax", axis=-HUGE),
    "Clip": data_case("Clip", np.zeros(2, floats)),
    "Cast": data_case("Cast", to=2**31 - 1),
    "Shape in a word": data_case("Softmax", axis="last"),
    "Celu": data_case("Celu", alpha=float("nan")),
    "HardSigmoid": data_case("HardSigmoid", alpha=[1.0]),
    "Dropout": data_case("Dropout", np.zeros(3, floats)),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_DATA)
def test_attributes_that_fit_nothing(case: str) -> None:
    with bounded(300), pytest.raises((GraphError, UnsupportedOperatorError)) as caught:
        from_onnx(ON_DATA[case])
    assert "y" in str(caught.value) and "\n" not in str(caught.value)
