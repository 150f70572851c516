"""Relay's divisions, shifts and bits of integers, and pooling where windows or averages are out of the ordinary."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from relay_texts import function, one, random, tensor

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.relay import from_relay


def test_divisions_cut_and_round_down() -> None:
    """`divide` and `mod` cut towards 0, `floor_divide` and `floor_mod` round down; no sum leaves the dtype."""
    for dtype in ("int8", "int16", "int32", "int64", "uint8"):
        limits = np.iinfo(dtype)
        x = np.array([limits.min, limits.min + 1, *range(-15 if limits.min else 0, 16), limits.max], dtype)
        for d in (1, 2, 7, 100, limits.max):
            divisor = np.array(d, dtype)
            cut = [int(v) // d if v >= 0 else -(-int(v) // d) for v in x]
            expected = {
                "divide": cut,
                "mod": [int(v) - d * quotient for v, quotient in zip(x, cut, strict=True)],
                "floor_divide": [int(v) // d for v in x],
                "floor_mod": [int(v) % d for v in x],
            }
            for kind, values in expected.items():
                found = one(f"{kind}(%x, meta[relay.Constant][0])", x, constants=(divisor,))
                assert found.dtype == dtype and found.tolist() == values, (kind, dtype, d)


def test_divisions_by_tensors_and_of_constants() -> None:
    x, y = np.array([[-9], [-1], [0], [8]], np.int32), np.array([1, 4, 9], np.int32)
    assert one("divide(%x, %y)", x, y).tolist() == [[-9, -2, -1], [-1, 0, 0], [0, 0, 0], [8, 2, 0]]
    assert one("mod(%x, %y)", x, y).tolist() == [[0, -1, 0], [0, -1, -1], [0, 0, 0], [0, 0, 8]]
    assert one("floor_mod(%x, %y)", x, y).tolist() == [[0, 3, 0], [0, 3, 8], [0, 0, 0], [0, 0, 8]]
    assert one("divide(100, %x)", y).tolist() == [100, 25, 11]
    assert one("add(%x, divide(-7, 2))", x)[:, 0].tolist() == [-12, -4, -3, 5]
    assert one("add(%x, mod(-7, 2))", x)[:, 0].tolist() == [-10, -2, -1, 7]


def test_bits_of_both() -> None:
    x, y = np.array([-(2**31), -6, -1, 0, 7, 2**31 - 1], np.int32), np.array([255, 3, -8, 1, 5, -2], np.int32)
    assert one("bitwise_and(%x, 255)", x).tolist() == (x & 255).tolist()
    assert one("bitwise_and(%x, %y)", x, y).tolist() == (x & y).tolist()
    assert one("bitwise_and(%x, %y)", x.astype("int8"), y.astype("int8")).dtype == np.int8
    truth = np.array([True, False])
    assert one("bitwise_and(%x, %y)", truth, ~truth).tolist() == [False, False]


def test_shifts_of_every_width() -> None:
    for dtype in ("int8", "int16", "int32", "int64"):
        limits = np.iinfo(dtype)
        x = np.array([limits.min, limits.min + 1, -5, -1, 0, 1, 5, limits.max], dtype)
        for by in range(limits.bits):
            found = one("right_shift(%x, meta[relay.Constant][0])", x, constants=(np.array(by, dtype),))
            assert found.dtype == dtype and found.tolist() == [int(v) >> by for v in x]
            small = np.array([-1, 0], dtype)
            found = one("left_shift(%x, meta[relay.Constant][0])", small, constants=(np.array(by, dtype),))
            assert found.dtype == dtype and found.tolist() == [-(2**by), 0]
        text = function(f"right_shift(%x, {limits.bits})", x=tensor((2,), dtype))
        with pytest.raises(UnsupportedOperatorError, match=f"to {limits.bits}; 0 to {limits.bits - 1} for {dtype}"):
            from_relay(text)
    shifts = np.array([0, 3, 62, 63])
    found = one("right_shift(%x, meta[relay.Constant][0])", np.full(4, -(2**63)), constants=(shifts,))
    assert found.tolist() == [-(2**63), -(2**60), -2, -1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("left_shift(%x, 2f)", "left_shift: input shift is of dtype float32 for float32"),
        ("bitwise_and(%x, %x)", "bitwise_and: the data is float32 and float32; integers"),
        ("divide(%n, -2)", "divide: input divisor is -2; an integer of 1 or more"),
        ("mod(%n, 0)", "mod: input divisor is 0; an integer of 1 or more"),
        ("right_shift(%x, 2)", "right_shift: input shift is of dtype int32 for float32; an integer for integers"),
    ],
)
def test_operands_of_integer_operators_that_are_refused(call: str, said: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=said):
        from_relay(function(f"({call}, %x, %n)", x=(3,), n=tensor((3,), "int32")))


def test_averages_of_integers_are_cut() -> None:
    """Of sums in the data's dtype; by the elements of the window, or all of its places."""
    x = np.random.default_rng(0).integers(-100, 100, (1, 2, 5, 6)).astype("int32")
    places = "pool_size=[2, 3], strides=[2, 2], padding=[1, 1, 0, 1]"
    for counts, more in ((False, ""), (True, ", count_include_pad=True")):
        found = one(f"nn.avg_pool2d(%x, {places}{more})", x)
        assert found.dtype == np.int32
        expected = np.zeros(found.shape, np.int64)
        for c, i, j in np.ndindex(*found.shape[1:]):
            rows, columns = range(2 * i - 1, 2 * i + 1), range(2 * j - 1, 2 * j + 2)
            held = [int(x[0, c, r, k]) for r in rows for k in columns if 0 <= r < 5 and 0 <= k < 6]
            expected[0, c, i, j] = int(sum(held) / (6 if counts else len(held)))
        np.testing.assert_array_equal(found, expected)
    whole = [int(plane.sum() / 30) for plane in x[0].astype(int)]
    assert one("nn.global_avg_pool2d(%x)", x).ravel().tolist() == whole
    assert one("nn.adaptive_avg_pool2d(%x, output_size=[1, 1])", x).ravel().tolist() == whole
    small = np.array([[[[5, -6], [7, -1]]]], np.int8)
    assert one("nn.avg_pool2d(%x, pool_size=[2, 2])", -small).tolist() == [[[[-1]]]]
    with pytest.raises(GraphError, match="int8"):
        one("nn.avg_pool2d(%x, pool_size=[2, 2])", np.full((1, 1, 2, 2), 100, np.int8))
    with pytest.raises(UnsupportedOperatorError, match="for averages of windows with gaps or of uneven sizes"):
        from_relay(function("nn.adaptive_avg_pool2d(%x, output_size=[2, 4])", x=tensor(x.shape, "int32")))


def pooled_along(row: np.ndarray, kind: str, k: int, s: int, pads: tuple[int, int], counts: bool, count: int) -> list:
    """`count` windows of one row: the lowest number, or 0, where they hold padding only."""
    result = []
    for start in range(-pads[0], -pads[0] + count * s, s):
        held = row[max(start, 0) : max(start + k, 0)]
        places = min(start + k, len(row) + pads[1]) - start if counts else held.size
        if kind == "max":
            result.append(held.max() if held.size else np.finfo(np.float32).min)
        else:
            result.append(held.sum() / places if held.size else 0.0)
    return result


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_windows_that_hold_padding_only(kind: str) -> None:
    """Before, behind and on both sides of the data; in ceil mode, too, which counts windows that start in the end."""
    x, checked = random(1, 1, 1, 5), 0
    for k, s, before, after, ceil in itertools.product((1, 2, 3), (1, 2, 4), range(4), range(4), (False, True)):
        free = 5 + before + after - k
        count = (-(-free // s) if ceil else free // s) + 1
        for counts in (False, True) if kind == "avg" else (False,):
            call = (
                f"nn.{kind}_pool2d(%x, pool_size=[1, {k}], strides=[1, {s}], padding=[0, {before}, 0, {after}], "
                f"ceil_mode={ceil}{', count_include_pad=True' if counts else ''})"
            )
            expected = pooled_along(x[0, 0, 0], kind, k, s, (before, after), counts, count)
            np.testing.assert_allclose(one(call, x)[0, 0, 0], expected, rtol=1e-6, err_msg=call)
            checked += 1
    assert checked >= 288


def test_windows_that_hold_padding_only_of_integers() -> None:
    x = np.array([[[[3, -7]]]], np.int32)
    wide = "pool_size=[1, 2], padding=[0, 2, 0, 3]"
    assert one(f"nn.max_pool2d(%x, {wide})", x).ravel().tolist() == [-(2**31), 3, 3, -7, -(2**31), -(2**31)]
    assert one(f"nn.avg_pool2d(%x, {wide})", x).ravel().tolist() == [0, 3, -2, -7, 0, 0]
    assert one(f"nn.max_pool2d(%x, {wide})", x.astype("int8")).dtype == np.int8
    with pytest.raises(GraphError, match="no window along axis 3 .* holds an element"):
        from_relay(function("nn.max_pool2d(%x, pool_size=[1, 1], strides=[1, 9], padding=[0, 1])", x=(1, 1, 1, 1)))
