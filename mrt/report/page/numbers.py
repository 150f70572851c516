"""Numbers as people read them: three significant digits, a true minus, narrow spaces between thousands, which do not
break, units at the end.

A number that is not known is a dash.
"""

from __future__ import annotations

import math

UNKNOWN = "–"
THIN = "\u202f"
MINUS = "−"


def number(value: float | None) -> str:
    """Three significant digits; zeros behind the point are kept, so that digits stand below each other."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if size and (size < 0.001 or size >= 1e6):
        digits, power = f"{value:.2e}".split("e")
        return f"{digits.replace('-', MINUS)} × 10{_superscript(int(power))}"
    if size >= 999.5:
        return integer(round(value))
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 or size == 0 else 3
    return f"{value:.{places}f}".replace("-", MINUS)


def integer(value: int | None) -> str:
    """All digits, in groups of three; numbers of four digits are not grouped."""
    if value is None:
        return UNKNOWN
    text = f"{value:,}" if abs(value) >= 10_000 else str(value)
    return text.replace(",", THIN).replace("-", MINUS)


def percent(share: float | None, places: int = 1) -> str:
    """A share of 1 in per cent; what is there and rounds to nothing is less than the last place."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    least = 10.0**-places
    if 0 < abs(share) * 100 < least / 2:
        return f"< {least:.{places}f} %"
    return f"{100 * share:.{places}f} %".replace("-", MINUS)


def precise(share: float) -> str:
    """A share of 1 in per cent, with three significant digits; however small, not 0 but where it is."""
    return f"{number(100 * share)} %" if share == 0 or share >= 1e-5 else "< 0.001 %"


def signed(value: float | None) -> str:
    """With a plus where it is more than 0."""
    return f"+{number(value)}" if value is not None and value > 0 else number(value)


def decibels(value: float | None) -> str:
    return UNKNOWN if value is None else f"{number(value)} dB"


def size(count: int | None) -> str:
    """Bytes, in the unit that leaves at most three digits before the point."""
    if count is None:
        return UNKNOWN
    if count < 1000:
        return f"{count} B"
    value, units = float(count), ["KiB", "MiB", "GiB"]
    for unit in units:
        value /= 1024
        if value < 999.5 or unit == units[-1]:
            return f"{number(value)} {unit}"
    raise AssertionError("the last unit takes all")


def duration(seconds: float | None) -> str:
    """A time in seconds as µs, ms, s or minutes."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 120:
        return f"{integer(round(seconds / 60))} min"
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{number(seconds * factor)} {unit}"
    return f"{number(seconds)} s"


def rate(per_second: float | None) -> str:
    """In billions a second, without the unit."""
    return UNKNOWN if per_second is None else number(per_second / 1e9)


def millions(count: float) -> str:
    return f"{number(count / 1e6)} × 10⁶" if count >= 10_000 else integer(round(count))


def span(pair: list[int] | None) -> str:
    """The least and the greatest of some integers; one where they are the same."""
    if pair is None:
        return UNKNOWN
    least, most = pair
    return integer(least) if least == most else f"{integer(least)} to {integer(most)}"


def _superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
