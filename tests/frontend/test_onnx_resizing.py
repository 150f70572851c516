"""Resize of ONNX by interpolation, over every combination of its attributes, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import assert_agrees, operators_of, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

SHAPE = (1, 2, 4, 5)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")


def scales(*values: float) -> dict[str, np.ndarray]:
    return {"scales": np.array(values, np.float32)}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (1.5, 2.2), (0.5, 0.6), (1, 1)])
def test_scales(mode: str, coordinates: str, factors: tuple[float, float]) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    graph = assert_agrees(single("Resize", SHAPE, scales(1, 1, *factors), 19, ["x", "", "scales"], **attributes))
    assert operators_of(graph).count("FullyConnected") == sum(factor != 1 for factor in factors)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(8, 10), (3, 9), (1, 1), (4, 5)])
@pytest.mark.parametrize("opset", [11, 13, 18, 19])
def test_sizes(mode: str, sizes: tuple[int, int], opset: int) -> None:
    inputs = ["x", "none", "none", "sizes"] if opset < 13 else ["x", "", "", "sizes"]
    constants = {"sizes": ints(1, 2, *sizes)} | ({"none": np.zeros(0, np.float32)} if opset < 13 else {})
    assert_agrees(single("Resize", SHAPE, constants, opset, inputs, mode=mode, nearest_mode="floor"))


def test_nearest_around_the_middle() -> None:
    attributes = {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": "floor"}
    assert_agrees(single("Resize", SHAPE, scales(1, 1, 1.7, 0.7), 19, ["x", "", "scales"], **attributes))


@pytest.mark.parametrize("a", [-0.75, -0.5, 0.25])
@pytest.mark.parametrize("exclude", [0, 1])
def test_kernels_of_cubic(a: float, exclude: int) -> None:
    attributes = {"mode": "cubic", "cubic_coeff_a": a, "exclude_outside": exclude}
    for factors in ((2, 3), (0.6, 0.8)):
        assert_agrees(single("Resize", SHAPE, scales(1, 1, *factors), 13, ["x", "", "scales"], **attributes))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("factors", [(0.5, 0.5), (0.6, 0.3), (2, 0.5), (1.5, 2)])
def test_antialiased(mode: str, exclude: int, factors: tuple[float, float]) -> None:
    attributes = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
    shape = (1, 2, 8, 10)
    assert_agrees(single("Resize", shape, scales(1, 1, *factors), 18, ["x", "", "scales"], **attributes))


def test_axes_and_one_or_three_of_them() -> None:
    inputs = ["x", "", "", "sizes"]
    assert_agrees(single("Resize", SHAPE, {"sizes": ints(7, 9)}, 18, inputs, mode="linear", axes=[2, 3]))
    assert_agrees(single("Resize", SHAPE, {"sizes": ints(9, 7)}, 18, inputs, mode="linear", axes=[3, 2]))
    assert_agrees(single("Resize", (1, 2, 6), scales(1, 1, 2.5), 13, ["x", "", "scales"], mode="linear"))
    assert_agrees(single("Resize", (1, 2, 3, 4, 5), scales(1, 1, 2, 1.5, 2), 13, ["x", "", "scales"], mode="linear"))


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_policies_of_the_aspect_ratio(policy: str, mode: str) -> None:
    constants = {"sizes": ints(7, 8)}
    attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": mode, "nearest_mode": "floor"}
    assert_agrees(single("Resize", SHAPE, constants, 18, ["x", "", "", "sizes"], **attributes))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("extrapolation", [0.0, 10.0])
@pytest.mark.parametrize("region", [(0.1, 0.2, 0.8, 0.9), (-0.3, 0.2, 0.7, 1.4), (0.4, 0.6, 0.6, 1.7)])
@pytest.mark.parametrize("sizes", [(3, 4), (6, 1)])
def test_parts(mode: str, extrapolation: float, region: tuple[float, ...], sizes: tuple[int, int]) -> None:
    roi = np.array([0, 0, *region[:2], 1, 1, *region[2:]], np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "nearest_mode": "floor"}
    model = single(
        "Resize", SHAPE, {"roi": roi, "sizes": ints(1, 2, *sizes)}, 13, ["x", "roi", "", "sizes"],
        extrapolation_value=extrapolation, **attributes,
    )  # fmt: skip
    assert_agrees(model)


@pytest.mark.parametrize("opset", [9, 10])
def test_first_opsets_interpolate(opset: int) -> None:
    op_type = "Upsample" if opset == 9 else "Resize"
    assert_agrees(single(op_type, SHAPE, scales(1, 1, 2, 1.5), opset, mode="linear"))


def test_what_is_not_covered() -> None:
    def resize(**attributes: object) -> None:
        from_onnx(single("Resize", SHAPE, scales(1, 1, 2, 2), 18, ["x", "", "scales"], **attributes))

    with pytest.raises(UnsupportedOperatorError, match="coordinate_transformation_mode is new; one of"):
        resize(coordinate_transformation_mode="new")
    with pytest.raises(GraphError, match=r"y \(Resize\): input 1 is missing"):
        resize(coordinate_transformation_mode="tf_crop_and_resize")
