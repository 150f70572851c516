"""Integer square roots and divisions compiled, against the records."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle

HIGHEST = 2**31 - 1


@pytest.mark.parametrize("fraction_bits", [0, 3, 12])
def test_roots_are_exact(fraction_bits: int) -> None:
    bundle = Bundle()
    edges = [n * n + d for n in (1, 2, 3, 255, 256, 46339, 46340) for d in (-1, 0, 1)]
    values = np.array([0, *edges, HIGHEST - 1, HIGHEST, *bundle.integers((400,), "int32", 0)], np.int32)
    x = bundle.input(values)
    bundle.add("integer_sqrt", x, fraction_bits=fraction_bits)
    square = bundle.hidden("clip", bundle.input(bundle.integers((3, 5, 1), "int32")), a_min=0, a_max=HIGHEST)
    root = bundle.hidden("integer_sqrt", square, fraction_bits=fraction_bits)
    bundle.add(
        "floor_divide",
        bundle.input(bundle.integers((3, 5, 7), "int32")),
        bundle.hidden("clip", root, a_min=1, a_max=HIGHEST),
    )
    for dtype in ("uint8", "int16"):
        bundle.add("integer_sqrt", bundle.input(bundle.integers((2, 3, 4), dtype, 0)), fraction_bits=fraction_bits)
    bundle.check()


def test_division_rounds_down_at_the_extremes() -> None:
    bundle = Bundle()
    edges = np.array([-(2**31), -(2**31) + 1, -7, -6, -1, 0, 1, 6, 7, HIGHEST - 1, HIGHEST], np.int32)
    divisors = np.array([1, 2, 3, 7, 2**16, HIGHEST - 1, HIGHEST], np.int32)
    lhs = bundle.input(edges[:, None])
    bundle.add("floor_divide", lhs, bundle.input(divisors))
    bundle.add("floor_divide", lhs, bundle.parameter(divisors))
    # Those of many numbers are inverted: all around the multiples of divisors of every size.
    sizes = np.array([2**n + d for n in range(31) for d in (-1, 0, 1) if 0 < 2**n + d <= HIGHEST], np.int64)
    multiples = sizes[:, None] * np.array([-(2**31) // sizes, -sizes * 0 - 1, sizes * 0 + 1, HIGHEST // sizes]).T
    near = (multiples[:, :, None] + np.arange(-2, 3)).reshape(len(sizes), -1).clip(-(2**31), HIGHEST).astype(np.int32)
    for divisor in (bundle.input(sizes[:, None].astype(np.int32)), bundle.parameter(sizes[:, None].astype(np.int32))):
        bundle.add("floor_divide", bundle.input(near), divisor)
    bundle.add("floor_divide", bundle.input(bundle.integers((4, 5), "int8")), bundle.input(np.array([[3]], np.uint8)))
    bundle.check()
