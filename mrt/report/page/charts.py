"""The data of a layer's charts, packed; what is said beside each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mrt.report.facts import Form, Layer, Values, Weights
from mrt.report.page.numbers import decibels, integer, number, percent, precise
from mrt.report.page.packing import pack, pack_logarithms, short

NO_CHARTS = dict.fromkeys(("values", "channels", "errors", "levels", "weights"))


def layer_charts(layer: Layer, most_channels: int) -> dict[str, Any]:
    """The charts of a layer, None for those that it has not; at most so many channels in each."""
    values, weights = layer.values, layer.weights
    return {
        "values": None if values is None else _values(values, layer.form),
        "channels": None if values is None or not values.channels else _channels(values, layer.form, most_channels),
        "errors": None if values is None or values.errors is None else _errors(values),
        "levels": None if weights is None else _levels(weights),
        "weights": None if weights is None or not weights.histograms else _weights(weights, most_channels),
    }


def _values(values: Values, form: Form | None) -> dict[str, Any]:
    """The histogram of float values, which leaves out those that are 0."""
    levels = form.hi - form.lo + 1 if form is not None else 0
    said = (
        f"{integer(levels)} levels"
        if form is None or form.scale_count > 1
        else (f"{integer(levels)} levels, step {number(form.scale)}")
    )
    clipped = f"{precise(values.clipped)} clipped" if values.clipped else "none clipped"
    zeros = f" · {percent(values.zeros, 0)} exactly zero, not drawn" if values.zeros > 0.001 else ""
    return {
        "from": short(values.histogram.lo),
        "to": short(values.histogram.hi),
        "counts": pack_logarithms(values.histogram.counts),
        "range": None if form is None else [short(form.real_lo), short(form.real_hi)],
        "levels": levels,
        "said": said if form is not None else "",
        "caption": f"share of values, log scale · {clipped}{zeros}",
    }


def _channels(values: Values, form: Form | None, most: int) -> dict[str, Any]:
    kept = _some(values.channels, most)
    total = values.channel_count or len(values.channels)
    return {
        "quantiles": pack(value for channel in kept for value in channel.spread),
        "range": None if form is None else [short(form.real_lo), short(form.real_hi)],
        "caption": f"quartiles{_of(len(kept), total)}",
    }


def _errors(values: Values) -> dict[str, Any]:
    errors = values.errors
    if errors is None:
        raise ValueError("the layer has no errors")
    inside = max(abs(errors.histogram.lo), abs(errors.histogram.hi)) > 0.5
    return {
        "from": short(errors.histogram.lo),
        "to": short(errors.histogram.hi),
        "counts": pack(map(float, errors.histogram.counts)),
        "limits": [-0.5, 0.5] if inside else [],
        "caption": f"rms {number(errors.rms)}; rounding alone ±½",
    }


def _levels(weights: Weights) -> dict[str, Any]:
    return {
        "from": short(weights.levels.lo),
        "to": short(weights.levels.hi),
        "counts": pack(map(float, weights.levels.counts)),
        "limits": [],
        "caption": f"SQNR {decibels(weights.sqnr)}",
    }


def _weights(weights: Weights, most: int) -> dict[str, Any]:
    """A histogram for each channel over its own range: a row of digits, one a bin, how full that is."""
    kept = _some(list(range(len(weights.histograms))), most)
    widest, least = max(weights.largest), min(weights.largest)
    apart = f", {number(widest / least)}× apart" if least > 0 else ", some are all zero"
    shown = _of(len(kept), weights.channel_count)
    return {
        "largest": pack([0.0, widest, *(weights.largest[i] for i in kept)]),
        "rows": ["".join(_digits(weights.histograms[i])) for i in kept],
        "caption": f"{shown}{apart if weights.channel_count > 1 else ''}".removeprefix(", "),
    }


def _digits(counts: Sequence[int]) -> Iterator[str]:
    """How full bins are, from 1 to 9 by the root, so that tails are seen; 0 is empty."""
    most = max(counts, default=0)
    for count in counts:
        yield str(math.ceil(9 * math.sqrt(count / most))) if count else "0"


def _some(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many, evenly chosen."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def _of(shown: int, total: int) -> str:
    return "" if shown >= total else f", {shown} of {integer(total)}"
