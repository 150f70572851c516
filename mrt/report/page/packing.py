"""Numbers for charts, packed: two letters each, which is finer than a screen shows and small enough for 400 layers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
STEPS, NONE = 4094, 4095


def pack(values: Iterable[float | None]) -> dict[str, Any]:
    """Values as even steps between the least and the greatest; what is None or not finite stays none."""
    given = [None if v is None or not math.isfinite(v) else v for v in values]
    known = [v for v in given if v is not None]
    lo, hi = min(known, default=0.0), max(known, default=0.0)
    wide = (hi - lo) or 1.0
    codes = (NONE if v is None else round((v - lo) / wide * STEPS) for v in given)
    return {"lo": short(lo), "hi": short(hi), "packed": "".join(LETTERS[c >> 6] + LETTERS[c & 63] for c in codes)}


def pack_logarithms(counts: Sequence[int]) -> dict[str, Any]:
    """log10 of each count's share of all; empty bins are none."""
    total = sum(counts)
    return pack(math.log10(count / total) if count else None for count in counts)


def short(value: float) -> float:
    """A float of few digits, for a chart."""
    return float(f"{value:.6g}")


def as_script(data: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end that, or begin a comment."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
