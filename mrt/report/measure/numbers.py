"""Numbers as a report writes them: as many digits as a reader uses."""

from __future__ import annotations

import math


def rounded(value: float, digits: int = 4) -> float:
    """A finite number of so many significant digits."""
    return float(f"{float(value):.{digits}g}")


def known(value: float | None, digits: int = 4) -> float | None:
    """The same; None for None, for NaN and for an infinity."""
    return None if value is None or not math.isfinite(value) else rounded(value, digits)


def decibels(signal: float, error: float) -> float | None:
    """10 log10(signal / error); None where either is 0."""
    return rounded(10 * math.log10(signal / error)) if signal > 0 and error > 0 else None


def width(lo: int, hi: int) -> float:
    """The bits of an interval of integers in two's complement, as a fraction: 8 for [-128, 127], 9 for [0, 255]."""
    return round(math.log2(max(-lo, hi + 1, 1)) + 1, 2)
