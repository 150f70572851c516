"""Symmetric quantizers: ranges, ties, degenerate ranges."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.quantization.quantizer import Target, quantize_parameter, round_half_away, symmetric_target


@pytest.mark.parametrize("bits", range(2, 17))
def test_ranges(bits: int) -> None:
    assert symmetric_target(1.0, bits, signed=True) == Target(
        1 / (2 ** (bits - 1) - 1), -(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1
    )
    assert symmetric_target(1.0, bits, signed=False) == Target(1 / (2**bits - 1), 0, 2**bits - 1)


def test_ties_go_away_from_zero() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999999, -0.0])
    assert round_half_away(values).tolist() == [1, 2, 3, -1, -2, -3, 0, 0]


def test_parameters_saturate() -> None:
    assert quantize_parameter(np.array([10.0, -10.0, 1.0]), 1.0, 7).tolist() == [7, -7, 1]


@pytest.mark.parametrize("magnitude", [0.0, 5e-324, 1e-40])
def test_a_tensor_that_was_only_ever_zero_has_scale_one(magnitude: float) -> None:
    assert symmetric_target(magnitude, 8, signed=True).scale == 1.0


def test_large_ranges_stay_finite() -> None:
    assert np.isfinite(symmetric_target(1e30, 8, signed=True).scale)
