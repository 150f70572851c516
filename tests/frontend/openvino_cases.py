"""How a case of an OpenVINO operator is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
from openvino import opset11  # noqa: E402
from openvino import opset13 as ops  # noqa: E402
from openvino_models import Case, ints, normal  # noqa: E402

from mrt.errors import UnsupportedOperatorError  # noqa: E402
from mrt.frontend.openvino import from_openvino  # noqa: E402

SHAPE = (2, 3, 4, 5)
IMAGE = (1, 4, 7, 6)
QUERY_KEY_VALUE = ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2))


def positive(*shape: int) -> np.ndarray:
    return np.abs(normal(*shape)) + np.float32(0.1)


def of(build: Callable[..., Any], shapes: Sequence[Sequence[int]] = (SHAPE,), **how: Any) -> Case:
    return Case(build, shapes, **how)


def of_two(build: Callable[..., Any], *shapes: Sequence[int]) -> Case:
    return of(build, shapes or (SHAPE, (4, 1)), draw=positive)


def halves(*shape: int) -> np.ndarray:
    return np.arange(-60, 60, dtype=np.float32).reshape(shape)


def const(*shape: int) -> Any:
    """A constant that is the same whenever it is made."""
    return ops.constant(np.random.default_rng(shape).normal(0, 1, shape).astype(np.float32))


def positive_const(*shape: int) -> Any:
    return ops.absolute(const(*shape))


def interpolated(**attributes: Any) -> Callable[..., Any]:
    sizes = attributes.pop("sizes", None)
    scales = attributes.pop("scales", None)
    given = ints(*sizes) if sizes else ops.constant(np.array(scales, np.float32))
    return lambda x: opset11.interpolate(
        x, given, axes=ints(2, 3), shape_calculation_mode="sizes" if sizes else "scales", **attributes
    )


def truths(x: Any) -> Any:
    """Numbers as truth values, since parameters are floats."""
    return ops.greater(x, ops.constant(np.float32(0)))


def refused(
    build: Callable[..., Any], *shapes: Sequence[int], error: type[Exception] = UnsupportedOperatorError
) -> str:
    with pytest.raises(error) as caught:
        from_openvino(of(build, shapes).model())
    return str(caught.value)
