"""What serves as a division gives the integers of one."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle
from hypothesis import given
from hypothesis import strategies as st

from mrt.backend import TvmRunner
from mrt.backend.te.reciprocal import reciprocal_of


def quotients(x: np.ndarray, parts: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """x · high + x · low as a machine rounds it, in numbers of twice as many bits: 64 of them hold the sum."""
    high, low = (np.longdouble(part) for part in parts)
    second = (x.astype(np.longdouble) * low).astype(np.float32)
    return (x.astype(np.longdouble) * high + second.astype(np.longdouble)).astype(np.float32)


@given(st.floats(2.0**-20, 2.0**20, width=32))
def test_quotients_round_to_the_integers_of_a_division(scale: float) -> None:
    """At every tie and beside it."""
    step = np.array(scale, np.float32)
    parts = reciprocal_of(step, -128, 127)
    if parts is None:
        assert np.log2(step) % 1 == 0  # whose reciprocal has no second part
        return
    ties = ((np.arange(-129, 129) + 0.5) * np.float64(step)).astype(np.float32)
    x = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))])
    expected, found = (np.clip(np.rint(each), -128, 127) for each in (x / step, quotients(x, parts)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("scale", [0.03973147, 0.1, 3.7, 0.25])
@pytest.mark.parametrize("zero_point", [0, -5])
def test_compiled_quotients_are_those_of_a_division(scale: float, zero_point: int) -> None:
    """Ties and their neighbours, huge numbers and infinite ones, of an image whose channels are put side by side."""
    bundle = Bundle()
    step = np.float32(scale)
    ties = ((np.arange(-140, 140) + 0.5) * np.float64(step)).astype(np.float32)
    near = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    extremes = np.array([0, -0.0, 1e-45, 3e38, -3e38, np.inf, -np.inf], np.float32)
    x = np.resize(np.concatenate([*near, extremes]), (1, 3, 18, 18))
    parameters = [bundle.parameter(step), bundle.parameter(np.array(zero_point, np.int8))]
    data = bundle.hidden("quantize", bundle.input(x), *parameters, a_min=-127, a_max=127, dtype="int8")
    weight = bundle.parameter(bundle.integers((16, 3, 1, 1), "int8", -127, 127))
    bundle.add("Convolution", data, weight, kernel=(1, 1), pad=(1, 1), num_filter=16, no_bias=True)
    bundle.add("quantize", bundle.input(x), *parameters, a_min=-127, a_max=127, dtype="int8")
    bundle.check(runner=TvmRunner())
