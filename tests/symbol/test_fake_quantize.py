"""FakeQuantize against its definition, computed with float64 and with fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.errors import GraphError
from mrt.symbol import Array, TensorType
from mrt.symbol.grid import Grid
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.symbol import apply, variable

LIMITS = st.floats(-64.0, 64.0, width=32)
LEVELS = st.sampled_from([2, 3, 4, 15, 16, 255, 256, 4095, 65535, 65536])


def run(levels: int, x: Array, *limits: object) -> Array:
    values = [np.asarray(x, np.float32), *(np.asarray(limit, np.float32) for limit in limits)]
    result = FakeQuantize(levels=levels).evaluate(*values)
    assert result.dtype == np.float32
    return result


def place(x: float, low: float, high: float, levels: int) -> Fraction | None:
    """Where among the levels the definition puts x: exact, not rounded; None outside of the limits."""
    x, low, high = (Fraction(value) for value in (x, low, high))
    if x <= min(low, high) or x > max(low, high):
        return None
    return (x - low) / (high - low) * (levels - 1)


@given(LEVELS, LIMITS, LIMITS, LIMITS, LIMITS, st.lists(st.floats(-70.0, 70.0, width=32), min_size=1, max_size=20))
def test_definition(levels: int, low: float, high: float, first: float, last: float, xs: list[float]) -> None:
    """Ordinary, inverted and equal limits; at the limits, beside them, and anywhere."""
    edges = [np.nextafter(np.float32(end), np.float32(side)) for end in (low, high) for side in (-99, end, 99)]
    xs = [*xs, *map(float, edges)]
    found = run(levels, xs, low, high, first, last)
    reach = max(abs(first), abs(last))
    for x, value in zip(xs, found.tolist(), strict=True):
        at = place(x, low, high, levels)
        if at is None:
            assert value == (first if x <= min(low, high) else last)
            continue
        # float32 tells the place only so well; where x lies near a tie either level is right.
        slack = Fraction(levels, 2**20) * (1 + Fraction(max(abs(x), abs(low))) / abs(Fraction(high) - Fraction(low)))
        nearest = {round(at - slack), round(at), round(at + slack)}
        wanted = [
            float(Fraction(n, levels - 1) * (Fraction(last) - Fraction(first)) + Fraction(first)) for n in nearest
        ]
        assert min(abs(value - w) for w in wanted) <= 4e-6 * reach + 1e-30


@pytest.mark.parametrize("levels", [2, 3, 16, 255, 256])
def test_halves_go_to_even_levels(levels: int) -> None:
    """With steps of 1 every half is exact in float32."""
    top = levels - 1
    found = run(levels, np.arange(top) + 0.5, 0.0, top, 0.0, top)
    assert found.tolist() == [float(round(Fraction(2 * n + 1, 2))) for n in range(top)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_float_dtype_stays(dtype: str) -> None:
    operator = FakeQuantize(levels=16)
    names = operator.input_names
    types = [TensorType((2, 3), dtype), *(TensorType((1,)) for _ in names[1:])]
    symbol = apply(operator, [variable(n, t) for n, t in zip(names, types, strict=True)], "y")
    assert symbol.type == TensorType((2, 3), dtype)


def test_limits_broadcast_to_the_data_alone() -> None:
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
    low, high = -np.arange(1, 4, dtype=np.float32).reshape(3, 1), np.float32([1, 1.5, 1, 2])
    found = run(7, x, low, high, low * 2, high)
    for index in np.ndindex(x.shape):
        one = run(7, x[index], low[index[1], 0], high[index[2]], low[index[1], 0] * 2, high[index[2]])
        assert found[index] == one
    operator = FakeQuantize(levels=7)
    with pytest.raises(GraphError, match="shapes that broadcast to the data's"):
        operator.infer(TensorType((3,)), *(TensorType((2, 3)) for _ in range(4)))
    with pytest.raises(GraphError, match="levels is 1; 2 to 65536 are needed"):
        FakeQuantize(levels=1).infer(*(TensorType(()) for _ in range(5)))


def test_levels_of_a_constant_are_those_of_its_values() -> None:
    x = np.random.default_rng(0).normal(0, 1, 500).astype(np.float32)
    for limits in ((-1.0, 1.5), (1.5, -1.0), (0.25, 0.25)):
        values = [np.float32(limit) for limit in (*limits, -3.0, 5.0)]
        levels = FakeQuantize(levels=33).level_of(x, *values)
        np.testing.assert_allclose(levels / 32 * 8.0 - 3.0, run(33, x, *values), atol=1e-5)


@given(LEVELS, LIMITS, LIMITS, LIMITS, LIMITS)
def test_grid_is_the_definition_as_quantization_and_dequantization(
    levels: int, low: float, high: float, first: float, last: float
) -> None:
    """S = (high - low) / (levels - 1), Z = -low / S of input and output, whatever is taken off the integers."""
    grid = Grid.of(levels, [np.float32(v) for v in (low, high, first, last)], 1)
    lo, hi = grid.integer_limits
    assert (lo, hi) == (0, 0) if first == last else hi - lo == levels - 1
    ends = sorted(float(grid.step_out[0] * (q - grid.zero_out[0])) for q in (lo, hi))
    np.testing.assert_allclose(ends, sorted((first, last)), atol=max(abs(first), abs(last)) * levels * 2.0**-20)
    if low < high and abs(low) / (high - low) < 10:
        at_low = low / grid.step_in[0] + grid.zero_in[0]
        assert abs(at_low - grid.lo) <= levels * 2.0**-18


@pytest.mark.parametrize(
    ("levels", "limits", "zero_out", "range_"),
    [
        (256, (-1.0078740157480315, 1.0), 0, (-128, 127)),  # symmetric: il = -ih / (1 - 2 / levels)
        (255, (-1.0, 1.0), 0, (-127, 127)),
        (256, (0.0, 2.0), 0, (0, 255)),
        (256, (-0.5, 2.05), 50, (0, 255)),
        (256, (-1.0, 1.0), -0.5, (-128, 127)),  # il = -ih: no integer
        (65536, (0.0, 1.0), -32768, (-32768, 32767)),
    ],
)
def test_integers_are_signed_where_zero_lies_in_the_middle(
    levels: int, limits: tuple[float, float], zero_out: float, range_: tuple[int, int]
) -> None:
    values = [np.float32(limit) for limit in (*limits, *limits)]
    grid = Grid.of(levels, values, 0)
    assert float(grid.zero_out) == pytest.approx(zero_out, abs=1e-9 if zero_out != -0.5 else 1e-4)
    assert (grid.lo, grid.hi) == range_
