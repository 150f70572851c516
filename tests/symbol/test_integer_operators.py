"""Shifts, casts, quantize and dequantize against Python integers and fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from applied import infer, run

from mrt.errors import DataError, GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastDiv, BroadcastMul
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul
from mrt.symbol.operators.integer import Cast, Dequantize, LeftShift, Quantize, RightShift
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.reduce import Mean, Sum
from mrt.symbol.operators.scalar import DivScalar, MulScalar, PlusScalar, RMinusScalar
from mrt.symbol.operators.transform import Concat

LOWEST, HIGHEST = -(2**31), 2**31 - 1
EDGES = [LOWEST, LOWEST + 1, -(2**30), -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**30 - 1, 2**30, HIGHEST - 1, HIGHEST]


@pytest.mark.parametrize("shift", range(32))
def test_right_shift_rounds_half_up(shift: int) -> None:
    result = run(RightShift(), np.array(EDGES, np.int32), np.array(shift, np.int32))
    assert result.tolist() == [floor(Fraction(x, 2**shift) + Fraction(1, 2)) for x in EDGES]
    assert result.tolist() == [x if not shift else ((x >> (shift - 1)) + 1) >> 1 for x in EDGES]


def test_right_shift_of_each_channel() -> None:
    x, shift = np.full((1, 3, 2), -3, np.int32), np.array([[0], [1], [31]], np.int32)
    assert run(RightShift(), x, shift)[0, :, 0].tolist() == [-3, -1, 0]


@pytest.mark.parametrize("shift", [0, 1, 2, 31])
def test_right_shift_bounds_are_exact(shift: int) -> None:
    for lo in EDGES:
        for hi in (x for x in EDGES if x >= lo):
            bounds = RightShift().bounds(Interval.of(lo, hi, (1,)), Interval.constant(np.array(shift)))
            ends = [floor(Fraction(x, 2**shift) + Fraction(1, 2)) for x in (lo, hi)]
            assert [bounds.min, bounds.max] == ends


def test_right_shift_holds_its_sum_before_the_last_bit() -> None:
    highest = Interval.of(0, HIGHEST, (1,))
    (shifted_by_one,) = RightShift().intermediates(highest, Interval.constant(np.array(1)))
    assert shifted_by_one.max == 2**31 and not shifted_by_one.fits_int32
    (unshifted,) = RightShift().intermediates(highest, Interval.constant(np.array(0)))
    assert unshifted.fits_int32
    (by_up_to_three,) = RightShift().intermediates(highest, Interval.of(0, 3, (1,)))
    assert by_up_to_three.max == 2**31
    (by_two,) = RightShift().intermediates(highest, Interval.constant(np.array(2)))
    assert by_two.max == 2**30


@pytest.mark.parametrize("shift", [-1, 32])
def test_shifts_outside_0_to_31_are_an_error(shift: int) -> None:
    for operator in (RightShift(), LeftShift()):
        with pytest.raises(GraphError, match="0 to 31 are needed"):
            run(operator, np.array([1], np.int32), np.array(shift, np.int32))
        with pytest.raises(GraphError, match="0 to 31 are needed"):
            operator.bounds(Interval.of(0, 1, (1,)), Interval.of(shift, shift, ()))


def test_left_shift() -> None:
    x, shift = np.array([-3, 0, 1], np.int32), np.array([4, 31, 30], np.int32)
    assert run(LeftShift(), x, shift).tolist() == [-48, 0, 2**30]
    with pytest.raises(GraphError, match="overflows int32"):
        run(LeftShift(), np.array([1], np.int32), np.array([31], np.int32))
    assert (
        str(LeftShift().bounds(Interval.of(-3, 5, (1,)), Interval.of(1, 40 - 9, ()))) == f"[{-3 * 2**31}, {5 * 2**31}]"
    )


def test_quantize_rounds_half_to_even_in_float32() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30, np.inf], np.float32)
    operator, one = Quantize(a_min=-128, a_max=127, dtype="int8"), np.int8([1])
    assert run(operator, x, np.float32([1]), one).tolist() == [-1, -1, 1, 1, 3, 3, 127, -128, 127]
    # 0.15 / 0.1 is below 1.5 in float64 and 1.5 in float32.
    assert run(operator, np.array([0.15], np.float32), np.array([0.1], np.float32), one).tolist() == [3]


def test_quantize_and_dequantize_each_channel() -> None:
    scale = np.array([[0.5], [2.0]], np.float32)
    x = np.array([[1.0, -1.0], [4.0, -3.0]], np.float32)
    zero_point = np.array([[7], [200]], np.uint8)
    q = run(Quantize(a_min=0, a_max=255, dtype="uint8"), x, scale, zero_point)
    assert q.tolist() == [[9, 5], [202, 198]]
    back = run(Dequantize(), q, scale, zero_point)
    assert back.dtype == np.float32 and back.tolist() == [[1.0, -1.0], [4.0, -4.0]]


def test_quantize_refuses_nan_and_a_scale_of_zero() -> None:
    operator = Quantize(a_min=-127, a_max=127, dtype="int8")
    for x, scale in ((np.nan, 1.0), (0.0, 0.0)):
        with pytest.raises(DataError, match="NaN"):
            run(operator, np.array([x], np.float32), np.array(scale, np.float32), np.array(0, np.int8))
    with pytest.raises(GraphError, match="no interval of int8"):
        infer(Quantize(a_min=0, a_max=255, dtype="int8"), TensorType((1,)), TensorType(()), TensorType((), "int8"))


def test_cast() -> None:
    assert run(Cast(dtype="int8"), np.array([-1.9, 1.9, 127.5], np.float32)).tolist() == [-1, 1, 127]
    assert run(Cast(dtype="uint8"), np.array([0, 255], np.int32)).dtype == np.uint8
    assert run(Cast(dtype="bool"), np.array([-2, 0], np.int32)).tolist() == [True, False]
    with pytest.raises(GraphError, match=r"\[-1, 255\] overflows uint8"):
        run(Cast(dtype="uint8"), np.array([-1, 255], np.int32))
    with pytest.raises(DataError, match="NaN or infinity"):
        run(Cast(dtype="int8"), np.array([np.nan], np.float32))
    with pytest.raises(GraphError, match="complex64"):
        infer(Cast(dtype="complex64"), TensorType((1,)))


def test_clip_of_integers_goes_to_the_integers_inside() -> None:
    x = np.arange(-4, 5, dtype=np.int8)
    assert run(Clip(a_min=-2.5, a_max=1.5), x).tolist() == [-2, -2, -2, -1, 0, 1, 1, 1, 1]
    assert run(Clip(a_min=-np.inf, a_max=1e30), x).tolist() == x.tolist()
    for operator in (Clip(a_min=200, a_max=300), Clip(a_min=0.2, a_max=0.8)):
        with pytest.raises(GraphError, match="no int8 lies in"):
            infer(operator, TensorType((1,), "int8"))
    with pytest.raises(GraphError, match="exceeds a_max"):
        infer(Clip(a_min=1, a_max=0), TensorType((1,)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_integer_arithmetic_gives_int32_and_never_wraps(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max], dtype)
    for operator in (ElemwiseAdd(), ElemwiseMul(), AddN(), BroadcastMul()):
        exact = [int(v) * int(v) if "ul" in operator.op else 2 * int(v) for v in x]
        if max(map(abs, exact)) <= HIGHEST:
            result = run(operator, x, x)
            assert result.dtype == np.int32 and result.tolist() == exact
        else:
            with pytest.raises(GraphError, match="overflows int32"):
                run(operator, x, x)


def test_scalars_of_integers_are_integers() -> None:
    x = np.array([-3, 4], np.int8)
    assert run(PlusScalar(1000.0), x).tolist() == [997, 1004]
    assert run(MulScalar(-100.0), x).tolist() == [300, -400]
    assert run(RMinusScalar(1.0), x).tolist() == [4, -3]
    for scalar in (0.5, 2.0**31, -(2.0**31) - 1, float("inf"), float("nan")):
        with pytest.raises(GraphError, match="meets int8.*; an integer that int32 holds is needed"):
            infer(PlusScalar(scalar), TensorType((1,), "int8"))
    for end in (-(2**31), 2**31 - 1):
        assert run(PlusScalar(end), np.array([0], np.int8)).tolist() == [end]


def test_int64_sums_are_exact() -> None:
    big = np.array([2**62, 2**62, 5], np.int64)
    assert Sum().evaluate(big).tolist() == [2**63 + 5]
    assert ElemwiseAdd().evaluate(big, big)[0] == 2**63


@pytest.mark.parametrize("operator", [BroadcastDiv(), DivScalar(2.0), Mean(), Softmax(), Sigmoid(), LeakyReLU()])
def test_what_has_no_integer_form_says_so(operator: BroadcastDiv) -> None:
    type = TensorType((1, 2), "int8")
    with pytest.raises(GraphError, match="no integer form"):
        infer(operator, *[type] * len(operator.input_names[: 2 if operator.op == "broadcast_div" else 1]))


def test_dtypes_that_are_kept_and_those_that_must_agree() -> None:
    small, large = TensorType((1, 2), "uint8"), TensorType((1, 2), "int8")
    assert infer(Relu(), small).dtype == infer(Pad((0, 0, 1, 1)), small).dtype == "uint8"
    with pytest.raises(GraphError, match="integers of one dtype"):
        infer(Concat(), small, large)
    with pytest.raises(GraphError, match=r"constant_value -1.0 is no uint8"):
        infer(Pad((0, 0, 1, 1), constant_value=-1.0), small)
    with pytest.raises(GraphError, match="no float form"):
        infer(RightShift(), TensorType((1,)), TensorType((), "int32"))
