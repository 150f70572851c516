"""Relax operators that repeat elements or move them between channels and space give what TVM computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import build, check, constant, operators, random
from tvm.relax import op

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.relax import from_relax


def test_tile_repeat_and_flip() -> None:
    def body(x: Any) -> list[Any]:
        return [
            op.tile(x, (1, 2, 3)),
            op.tile(x, 2),
            op.tile(x, (2, 1, 1, 3)),
            op.repeat(x, 3, 1),
            op.repeat(x, 2, -1),
            op.repeat(x, 2),
            op.flip(x, 0),
            op.flip(x, -1),
            op.flip(op.flip(x, 1), 2),
        ]

    check(body, x=(2, 3, 4))


def test_flip_of_one_element_is_nothing() -> None:
    assert operators(check(lambda x: op.nn.relu(op.flip(x, 0)), x=(1, 3))) == ["relu"]


@pytest.mark.parametrize(("shape", "factor"), [((2, 12, 3, 4), 2), ((1, 18, 2, 1), 3), ((1, 2, 3, 3), 1)])
def test_pixel_shuffle(shape: tuple[int, ...], factor: int) -> None:
    """TVM has no lowering for it, so the definition, element by element, is the oracle."""
    data = random(*shape)
    found = from_relax(build(lambda x: op.nn.pixel_shuffle(x, factor), x=shape)).evaluate({"x": data})[0]
    assert found.shape == (shape[0], shape[1] // factor**2, shape[2] * factor, shape[3] * factor)
    for n, c, y, x in np.ndindex(found.shape):
        source = (c * factor + y % factor) * factor + x % factor
        assert found[n, c, y, x] == data[n, source, y // factor, x // factor]


_COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"]


_METHODS = [("linear", 0), ("cubic", 0), ("cubic", 1)]
_SMOOTH = [((8, 10), -0.75), ((7, 13), -0.5), ((2, 3), -0.5), ((4, 10), -0.5)]
"""Sizes of the result and the curve's alpha."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("coordinates", _COORDINATES[:4])
@pytest.mark.parametrize(("method", "exclude"), _METHODS)
def test_resize_by_interpolation(coordinates: str, method: str, exclude: int) -> None:
    """One of the sizes in turn: each method meets all of them."""
    size, alpha = _SMOOTH[(_COORDINATES.index(coordinates) + _METHODS.index((method, exclude))) % len(_SMOOTH)]

    def body(x: Any) -> Any:
        return op.image.resize2d(
            x,
            size,
            method=method,
            coordinate_transformation_mode=coordinates,
            cubic_alpha=alpha,
            cubic_exclude=exclude,
        )

    check(body, x=(1, 2, 4, 5))


def test_resize_of_other_layouts_and_ranks_by_interpolation() -> None:
    def body(x: Any, y: Any) -> list[Any]:
        return [
            op.image.resize2d(x, (6, 7), layout="NHWC", method="linear"),
            op.image.resize3d(y, (4, 6, 3), method="linear"),
        ]

    check(body, x=(1, 4, 5, 2), y=(1, 2, 2, 3, 2))


_ROUNDINGS = ["", "round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("coordinates", _COORDINATES)
@pytest.mark.parametrize("rounding", _ROUNDINGS)
def test_resize_to_the_nearest(coordinates: str, rounding: str) -> None:
    """Whole factors, other enlargements, reductions, and axes that stay, every third in turn."""
    turn = (_COORDINATES.index(coordinates) + _ROUNDINGS.index(rounding)) % 3

    def body(x: Any) -> list[Any]:
        return [
            op.image.resize2d(
                x,
                size,
                method="nearest_neighbor",
                coordinate_transformation_mode=coordinates,
                rounding_method=rounding,
            )
            for size in [(8, 10), (12, 15), (7, 13), (2, 3), (4, 10), (8, 5), (4, 5)][turn::3]
        ]

    check(body, x=(1, 2, 4, 5))


def test_resize_by_a_whole_factor_is_upsampling_in_any_layout() -> None:
    def body(x: Any) -> Any:
        return op.image.resize2d(
            x,
            (9, 12),
            layout="NHWC",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )

    assert operators(check(body, x=(1, 3, 4, 2))) == ["transpose", "UpSampling", "transpose"]


def test_resize_of_a_volume() -> None:
    def body(x: Any) -> Any:
        return op.image.resize3d(x, (4, 6, 2), method="nearest_neighbor", coordinate_transformation_mode="asymmetric")

    assert operators(check(body, x=(1, 2, 2, 3, 2))) == ["repeat", "repeat"]


def test_transposes_of_a_channels_last_decoder_move_to_its_ends() -> None:
    weight = constant(random(3, 3, 2, 4))

    def body(x: Any) -> list[Any]:
        y = op.nn.silu(op.nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO", padding=1))
        y = op.maximum(op.nn.log_softmax(y, 3), op.floor(op.power(y, constant(3.0))))
        y = op.image.resize2d(y, (8, 10), layout="NHWC", method="nearest_neighbor", rounding_method="floor")
        return [op.minimum(y, op.nn.selu(y)), op.min(y, [1, 2])]

    assert operators(check(body, x=(1, 4, 5, 2))).count("transpose") == 2, "one for the input, one for the output"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            lambda x: op.image.resize2d(
                x, (8, 8), method="nearest_neighbor", coordinate_transformation_mode="tf_crop_and_resize"
            ),
            "coordinate_transformation_mode is tf_crop_and_resize",
        ),
        (lambda x: op.nn.pixel_shuffle(op.squeeze(x, [0]), 2), "rank 4 is needed"),
        (lambda x: op.bitwise_not(x), r"relax\.bitwise_not"),
    ],
)
def test_uses_that_are_not_covered_are_refused(body: Any, found: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=found):
        from_relax(build(body, x=(1, 4, 4, 4)))


def test_repeats_of_nothing_are_refused() -> None:
    with pytest.raises(GraphError, match="repeats is 0"):
        from_relax(build(lambda x: op.repeat(x, 0, 1), x=(2, 3)))
