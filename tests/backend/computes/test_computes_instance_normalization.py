"""InstanceNorm, L2Normalization and dot compiled, against the records."""

from __future__ import annotations

import numpy as np
from compiled import Bundle


def test_normalizations_agree() -> None:
    bundle = Bundle()
    for shape in ((2, 3, 5), (2, 3, 4, 5), (1, 3, 2, 2, 2)):
        x = bundle.input(bundle.floats(*shape))
        bundle.add("InstanceNorm", x, bundle.parameter(bundle.floats(3)), bundle.parameter(bundle.floats(3)), eps=0.01)
        for mode in ("instance", "channel", "spatial"):
            bundle.add("L2Normalization", x, mode=mode)
    bundle.add("L2Normalization", bundle.input(np.zeros((2, 3), np.float32)))
    bundle.check(tolerance=1e-5)


def test_long_rows_are_summed_by_vectors() -> None:
    """Which is as quick as near: added up one after the other, 40,000 numbers are off by 1e-4."""
    bundle = Bundle()
    for length in (40_000, 4_003):
        x = bundle.input(10 + bundle.floats(1, 2, length))
        bundle.add("InstanceNorm", x, bundle.parameter(bundle.floats(2)), bundle.parameter(bundle.floats(2)), eps=1e-5)
    bundle.check(tolerance=1e-5)


def test_dot_agrees() -> None:
    bundle = Bundle()
    for dtype in ("int8", "float32"):
        for n, k, m in ((5, 7, 9), (16, 8, 32), (31, 4, 3), (1, 1, 1)):
            for transpose_a in (False, True):
                for transpose_b in (False, True):
                    shapes = ((k, n) if transpose_a else (n, k)), ((m, k) if transpose_b else (k, m))
                    values = [bundle.floats(*s) if dtype == "float32" else bundle.integers(s, dtype) for s in shapes]
                    bundle.add(
                        "dot", *(bundle.input(v) for v in values), transpose_a=transpose_a, transpose_b=transpose_b
                    )
    bundle.check(tolerance=1e-4)
