"""Numbers for charts, packed: two letters each, which is finer than a screen shows and small enough for 400 layers."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
STEPS, NONE = 4094, 4095


def pack(values: Iterable[float | None]) -> dict[str, Any]:
    """Values as even steps between the least and the greatest; what is None or not finite stays none."""
    given = np.array([math.nan if v is None else v for v in values], np.float64)
    known = np.isfinite(given)
    lo, hi = (float(end(given[known])) if known.any() else 0.0 for end in (np.min, np.max))
    steps = np.rint((np.where(known, given, lo) - lo) / ((hi - lo) or 1.0) * STEPS)
    codes = np.where(known, steps, NONE).astype(np.uint16)
    letters = ALPHABET[np.stack([codes >> 6, codes & 63], axis=1)]
    return {"lo": short(lo), "hi": short(hi), "packed": letters.tobytes().decode()}


def pack_logarithms(counts: Sequence[int]) -> dict[str, Any]:
    """log10 of each count's share of all; empty bins are none."""
    total = sum(counts)
    return pack(math.log10(count / total) if count else None for count in counts)


def short(value: float) -> float:
    """A float of few digits, for a chart."""
    return float(f"{value:.6g}")


def as_script(data: Any) -> str:
    """JSON, compressed, in letters that mean nothing to HTML: the same names and words stand in it for each layer."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
