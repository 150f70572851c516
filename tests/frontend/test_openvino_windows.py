"""OpenVINO's convolutions, poolings and interpolations against its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
from openvino import opset1, opset14  # noqa: E402
from openvino import opset13 as ops  # noqa: E402
from openvino_cases import IMAGE, const, interpolated, of  # noqa: E402
from openvino_models import answers, check_all, ints  # noqa: E402

from mrt.errors import GraphError  # noqa: E402

PADS = (
    *(("explicit", (0, 0), (0, 0)), ("explicit", (1, 0), (2, 1))),
    *((mode, (0, 0), (0, 0)) for mode in ("same_upper", "same_lower", "valid")),
)


def test_convolution() -> None:
    """Of each, an addition behind it is its bias."""

    def build(mode: str, begins: Any, ends: Any, stride: Any, dilation: Any, x: Any) -> Any:
        dense = ops.convolution(x, const(6, 4, 3, 2), stride, begins, ends, dilation, mode)
        biased = ops.add(dense, const(1, 6, 1, 1))
        return ops.group_convolution(biased, const(3, 1, 2, 1, 2), (1, 1), (0, 0), (0, 1), (1, 1), "explicit")

    forms = product(PADS, [(1, 1), (2, 3)], [(1, 1), (2, 1)])
    cases = [of(partial(build, *pads, stride, dilation), (IMAGE,), tolerance=5e-5) for pads, stride, dilation in forms]
    for graph in check_all(cases):
        assert [symbol.op for symbol in graph.operators if symbol.op != "Pad"] == ["Convolution", "Convolution"]


def test_convolution_of_other_ranks() -> None:
    def build(rank: int, x: Any) -> Any:
        ones = (1,) * rank
        return ops.convolution(x, const(2, 3, *(2,) * rank), ones, (0,) * rank, ones, ones)

    check_all([of(partial(build, rank), ((2, 3, *(5,) * rank),)) for rank in (1, 3)])


def test_deconvolution() -> None:
    def build(groups: int, stride: int, pads: Any, added: Any, mode: str, x: Any) -> Any:
        weight = const(4, 3, 3, 2) if groups == 1 else const(groups, 2, 3, 3, 2)
        make = opset1.convolution_backprop_data if groups == 1 else opset1.group_convolution_backprop_data
        shape = ints(4 * stride, 4 * stride) if mode != "explicit" else None
        return make(x, weight, [stride] * 2, shape, *map(list, pads), [1, 1], mode, [*added])

    none = ((0, 0), (0, 0))
    stated = list(product((1, 2), (1, 2, 3), (none, ((1, 0), (0, 2))), [(0, 0)], ("explicit",)))
    padded = list(product((1, 2), (2, 3), (none, ((1, 0), (0, 2))), [(1, 0)], ("explicit",)))
    shaped = list(product((1, 2), (1, 2, 3), (none,), [(0, 0)], ("same_upper", "same_lower")))
    cases = [of(partial(build, *form), ((1, 4, 5, 5),), tolerance=5e-5) for form in (*stated, *padded, *shaped)]
    check_all(cases)


def max_pooled(pads: Any, stride: Any, rounding: str, dilation: Any, x: Any) -> Any:
    mode, begins, ends = pads
    return [opset14.max_pool(x, stride, dilation, begins, ends, (3, 2), rounding, mode).output(0)]


def first_max_pooled(pads: Any, stride: Any, rounding: str, x: Any) -> Any:
    mode, begins, ends = pads
    return opset1.max_pool(x, stride, begins, ends, (3, 2), rounding, mode)


def average_pooled(pads: Any, stride: Any, rounding: str, leaves_out: bool, x: Any) -> Any:
    mode, begins, ends = pads
    return opset14.avg_pool(x, stride, begins, ends, (3, 2), leaves_out, rounding, mode)


@pytest.mark.parametrize("size", [7, 8])
def test_pooling(size: int) -> None:
    pads = (*PADS, ("explicit", (1, 1), (0, 1)))
    every = list(product(pads, [(2, 2), (3, 1)], ("floor", "ceil", "ceil_torch")))
    made = [
        *(partial(max_pooled, *form, dilation) for form, dilation in product(every, [(1, 1), (2, 1)])),
        *(partial(first_max_pooled, *form) for form in every if form[2] != "ceil_torch"),
        *(partial(average_pooled, *form, leaves_out) for form, leaves_out in product(every, (True, False))),
    ]
    cases = [of(build, ((1, 2, size, size - 1),)) for build in made]
    refused = 0
    for case, answer in zip(cases, answers(cases), strict=True):
        try:
            case.check(*answer)
        except GraphError as error:
            # A window that holds nothing but padding, of which there is no largest element and no average.
            assert "holds padding only" in str(error)
            values = np.unique(np.concatenate([values.reshape(-1) for values in answer[1]]))
            assert not np.isfinite(values).all() or values.min() < -1e30 or 0 in values
            refused += 1
    assert refused < 10


COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn")
SIZES: Sequence[dict[str, Any]] = ({"sizes": (8, 10)}, {"sizes": (3, 7)}, {"scales": (1.5, 0.5)}, {"sizes": (1, 5)})


@pytest.mark.parametrize("mode", ["linear", "linear_onnx", "cubic"])
def test_interpolation(mode: str) -> None:
    check_all(
        [
            of(interpolated(mode=mode, coordinate_transformation_mode=kind, **size), ((1, 2, 4, 5),), tolerance=1e-4)
            for kind, size in product(COORDINATES, SIZES)
        ]
    )


def test_nearest_elements() -> None:
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
    check_all(
        [
            of(
                interpolated(mode="nearest", nearest_mode=how, coordinate_transformation_mode=kind, **size),
                ((1, 2, 4, 5),),
            )
            for how, kind, size in product(roundings, COORDINATES, SIZES)
        ]
    )
