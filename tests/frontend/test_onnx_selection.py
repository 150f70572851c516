"""Repeating, resizing, choosing and deconvolving, against ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import assert_agrees, make_model, operators_of, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(11)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("repeats", [(1, 2, 3), (2, 1, 1), (1, 1, 1)])
def test_tile(repeats: tuple[int, ...]) -> None:
    assert_agrees(single("Tile", (1, 3, 4), {"repeats": ints(*repeats)}))


@pytest.mark.parametrize(("mode", "records"), [("DCR", 1), ("CRD", 3)])
def test_depth_and_space(mode: str, records: int) -> None:
    graph = assert_agrees(single("DepthToSpace", (1, 8, 3, 2), blocksize=2, mode=mode))
    assert len(operators_of(graph)) == records
    assert_agrees(single("SpaceToDepth", (1, 3, 4, 6), blocksize=2))


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 3, 2), (1, 1, 1.5, 0.6), (1, 1, 1, 1)])
def test_resize_by_scales(coordinates: str, rounding: str, scales: tuple[float, ...]) -> None:
    constants = {"scales": np.array(scales, np.float32)}
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding, "mode": "nearest"}
    assert_agrees(single("Resize", (1, 2, 4, 5), constants, 13, ["x", "", "scales"], **attributes))


def test_resize_by_whole_numbers_is_up_sampling() -> None:
    for opset, inputs in ((10, ["x", "scales"]), (13, ["x", "", "scales"])):
        graph = assert_agrees(
            single("Resize", (1, 2, 4, 5), {"scales": np.array([1, 1, 2, 2], np.float32)}, opset, inputs)
        )
        assert operators_of(graph) == ["UpSampling"]
    graph = assert_agrees(single("Upsample", (1, 2, 4, 5), {"scales": np.array([1, 1, 2, 3], np.float32)}, 9))
    assert operators_of(graph) == ["repeat", "repeat"]


@pytest.mark.parametrize("sizes", [(1, 2, 8, 10), (1, 2, 3, 7), (1, 2, 1, 1)])
def test_resize_to_sizes(sizes: tuple[int, ...]) -> None:
    inputs = ["x", "", "", "sizes"]
    assert_agrees(single("Resize", (1, 2, 4, 5), {"sizes": ints(*sizes)}, 13, inputs, nearest_mode="floor"))
    assert_agrees(single("Resize", (1, 2, 4, 5), {"sizes": ints(*sizes[2:])}, 18, inputs, axes=[2, 3]))


def test_resize_that_is_not_covered() -> None:
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    with pytest.raises(UnsupportedOperatorError, match="attribute mode is lanczos; nearest, linear or cubic is needed"):
        from_onnx(single("Resize", (1, 2, 4, 5), constants, 13, ["x", "", "scales"], mode="lanczos"))
    with pytest.raises(GraphError, match="one for each of axes"):
        from_onnx(single("Resize", (1, 2, 4), constants, 13, ["x", "", "scales"]))


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(("axis", "keepdims"), [(0, 1), (1, 0), (-1, 1), (2, 0)])
def test_places_of_extremes(operator: str, axis: int, keepdims: int) -> None:
    node = helper.make_node(operator, ["x"], ["y"], axis=axis, keepdims=keepdims)
    assert_agrees(make_model([node], {"x": (2, 3, 4)}, dtypes={"y": TensorProto.INT64}))


def test_places_in_a_vector() -> None:
    node = helper.make_node("ArgMax", ["x"], ["y"], keepdims=0)
    assert_agrees(make_model([node], {"x": (7,)}, dtypes={"y": TensorProto.INT64}))


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(("axis", "keepdims"), [(0, 1), (1, 0), (-1, 1)])
def test_the_last_of_equal_places(operator: str, axis: int, keepdims: int) -> None:
    node = helper.make_node(operator, ["x"], ["y"], axis=axis, keepdims=keepdims, select_last_index=1)
    model = make_model([node], {"x": (3, 4)}, dtypes={"y": TensorProto.INT64})
    assert_agrees(model, {"x": np.array([[1, 2, 2, 1], [0, 0, 0, 0], [3, 1, 3, 0]], np.float32)})
    node = helper.make_node(operator, ["x"], ["y"], axis=0, keepdims=0, select_last_index=1)
    vector = make_model([node], {"x": (4,)}, dtypes={"y": TensorProto.INT64})
    assert_agrees(vector, {"x": np.array([1, 2, 2, 1], np.float32)})


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
@pytest.mark.parametrize("opset", [9, 11])
def test_one_hot(axis: int, opset: int) -> None:
    constants = {"depth": ints(4), "values": np.array([0.25, 3], np.float32)}
    node = helper.make_node("OneHot", ["x", *constants], ["y"], axis=axis)
    model = make_model([node], {"x": (2, 3)}, ["y"], constants, opset, {"x": TensorProto.INT64})
    assert_agrees(model, {"x": np.array([[0, 3, -1], [-4, 4, -5]])})


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("opset", [9, 11, 13])
def test_hardmax(axis: int | None, opset: int) -> None:
    attributes = {} if axis is None else {"axis": axis}
    if axis == -1 and opset < 11:
        pytest.skip("negative axes exist from opset 11 on")
    assert_agrees(single("Hardmax", (2, 3, 4), opset=opset, **attributes))


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_largest_and_smallest_of_several(operator: str) -> None:
    shapes = {"a": (2, 3, 4), "b": (2, 3, 4), "c": (3, 1)}
    expected = {"a": [], "ab": ["imum"], "ac": ["broadcast_"], "abc": ["broadcast_", "broadcast_"]}
    for names, records in expected.items():
        node = helper.make_node(operator, list(names), ["y"])
        graph = assert_agrees(make_model([node], {name: shapes[name] for name in names}))
        found = [name for name in operators_of(graph) if name != "_copy"]
        assert len(found) == len(records) and all(part in name for part, name in zip(records, found, strict=True))
    graph = assert_agrees(single(operator, (2, 3), {"c": np.float32(0.25)}))
    assert operators_of(graph) == [f"_{operator.lower()}imum_scalar"]
    assert_agrees(single(operator, (2, 3), {"c": normal(3)}))
    for axes, keepdims in itertools.product(((1,), (0, 2)), (0, 1)):
        assert_agrees(single(f"Reduce{operator}", (2, 3, 4), opset=13, axes=axes, keepdims=keepdims))


@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (3, 1), (1, 1, 1)])
def test_where_of_constant_conditions(shape: tuple[int, ...]) -> None:
    constants = {"c": RNG.integers(0, 2, shape).astype(bool), "other": normal(3, 4)}
    assert operators_of(assert_agrees(single("Where", (2, 3, 4), constants, inputs=["c", "x", "other"]))) == ["where"]
    assert_agrees(single("Where", (2, 3, 4), constants, inputs=["c", "other", "x"]))


@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (3, 1)])
def test_where_of_computed_conditions(shape: tuple[int, ...]) -> None:
    node = helper.make_node("Where", ["c", "x", "z"], ["y"])
    model = make_model([node], {"c": shape, "x": (2, 3, 4), "z": (1, 4)}, dtypes={"c": TensorProto.BOOL})
    feeds = {"c": RNG.integers(0, 2, shape).astype(bool), "x": normal(2, 3, 4), "z": normal(1, 4)}
    assert_agrees(model, feeds)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 2]},
        {"strides": [2, 3], "output_padding": [1, 2], "pads": [1, 0, 1, 0]},
        {"strides": [2, 2], "pads": [0, 1, 1, 1]},
        {"strides": [2, 2], "pads": [1, 1, 0, 0], "output_padding": [1, 1]},
        {"strides": [3, 2], "dilations": [2, 1], "pads": [2, 0, 0, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [3, 3], "auto_pad": "VALID"},
        {"strides": [2, 2], "output_shape": [9, 10]},
        {"strides": [2, 2], "output_shape": [8, 9], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "output_shape": [10, 11], "output_padding": [1, 1]},
    ],
    ids=str,
)
@pytest.mark.parametrize("group", [1, 2])
def test_deconvolution(attributes: dict[str, object], group: int) -> None:
    constants = {"w": normal(4, 3, 3, 2), "b": normal(3 * group)}
    for count in (1, 2):
        some = dict(list(constants.items())[:count])
        assert_agrees(single("ConvTranspose", (1, 4, 4, 5), some, group=group, **attributes))


def test_deconvolution_of_one_and_three_axes() -> None:
    assert_agrees(single("ConvTranspose", (2, 3, 6), {"w": normal(3, 2, 4)}, strides=[3]))
    assert_agrees(single("ConvTranspose", (1, 2, 3, 2, 4), {"w": normal(2, 2, 2, 3, 1)}, strides=[2, 1, 3]))


def test_deconvolutions_that_do_not_fit() -> None:
    with pytest.raises(GraphError, match="pads .* leave the positions"):
        from_onnx(single("ConvTranspose", (1, 3, 2), {"w": normal(3, 2, 2)}, pads=[2, 2]))
    with pytest.raises(GraphError, match="the output shall be .*9.*; the data reaches .*3.* only"):
        from_onnx(single("ConvTranspose", (1, 3, 2), {"w": normal(3, 2, 2)}, output_shape=[9]))
    with pytest.raises(UnsupportedOperatorError, match="no negative entry"):
        from_onnx(single("ConvTranspose", (1, 3, 2), {"w": normal(3, 2, 2)}, pads=[-1, 0]))
