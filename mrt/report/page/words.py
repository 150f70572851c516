"""What a page says in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.report.facts import Accuracy, Layer, LayerSqnr, Output, Report
from mrt.report.page.names import shortened
from mrt.report.page.numbers import THIN, decibels, number, percent, precise

CHANCE = 1.96
"""Standard errors that 95 % of differences by chance lie within."""
FAR = 6.0
"""dB between two parts, or two measurements, that are worth a sentence."""
MOSTLY, LONG = 0.75, 48
ROOM, WIDE = 0.75, 1 << 16
"""Values that fill less of a quantizer's range waste some of it; integers of so many levels were not rounded."""


def verdict(report: Report) -> str:
    """What the first lines say: integers only and proven, then what that cost."""
    said = "Integer only, proven." if report.proof.max_bits <= 32 else f"Integer only, of {report.proof.max_bits} bits."
    return " ".join(filter(None, (said, _loss(report.accuracy), _weakest(report.outputs or ()))))


def _loss(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return "Its accuracy was not measured."
    if accuracy.difference is None or accuracy.standard_error is None:
        return "" if accuracy.sqnr is None else f"Its outputs reach {decibels(accuracy.sqnr)} SQNR against float."
    points = f"{number(100 * abs(accuracy.difference))} points"
    if abs(accuracy.difference) > CHANCE * accuracy.standard_error:
        way = "loses" if accuracy.difference < 0 else "gains"
        return f"It {way} {points} of accuracy, more than chance explains."
    return f"No loss of accuracy that {accuracy.samples} samples could show."


def _weakest(outputs: Sequence[Output]) -> str:
    """The part of an output that is far worse than the best one; "" where there is none."""
    parts = [(f"{part.name} of {output.name}", part.sqnr) for output in outputs for part in output.parts]
    parts = parts or [(output.name, output.sqnr) for output in outputs]
    known = [(name, sqnr) for name, sqnr in parts if sqnr is not None]
    if len(known) < 2:
        return ""
    worst, best = min(known, key=lambda each: each[1]), max(known, key=lambda each: each[1])
    if best[1] - worst[1] < FAR:
        return ""
    weak, good = shortened(worst[0], LONG), shortened(best[0], LONG)
    return f"Its weakest output is {weak}: {decibels(worst[1])}, where {good} has {decibels(best[1])}."


def reason(report: Report, part: str, default: str) -> str:
    """Why a part was not measured, as a sentence."""
    return sentence(report.missing[part]) if part in report.missing else default


def sentence(text: str) -> str:
    """With a full stop and a capital, but where a command or a key comes first."""
    first = text.partition(" ")[0]
    text = text[:1].upper() + text[1:] if first.isalpha() and first != "mrt" else text
    return text if text.endswith((".", "!", "?")) else f"{text}."


def layer_title(layer: Layer) -> str:
    return " ".join(filter(None, (layer.kind, layer.detail)))


def layer_over(layer: Layer) -> str:
    """The line above a layer's name."""
    shape = "×".join(map(str, layer.shape))
    channels = f"{layer.channels} channel{'' if layer.channels == '1' else 's'}" if layer.channels else ""
    return " · ".join(filter(None, (layer_title(layer), channels, ", ".join(layer.followers), shape)))


def layer_said(layer: Layer, rank: int | None, count: int) -> str:
    """One layer in words. rank: its place among `count` layers by share of the error, from 1; None: not measured."""
    said = [_adds(layer, rank, count)]
    values, form = layer.values, layer.form
    if form is None:
        said.append("No tensor of integers ends it by itself: it is computed as a part of what follows.")
    if values is not None and form is not None:
        clipped = f"{precise(values.clipped)} of its values are clipped." if values.clipped else "No value is clipped."
        said.append(clipped)
        used = (values.hi - values.lo) / ((form.real_hi - form.real_lo) or 1)
        if used < ROOM and form.hi - form.lo < WIDE:
            said.append(f"Its values fill {percent(used, 0)} of the quantizer's range.")
    said.append(_brought(layer.sqnr))
    return " ".join(filter(None, said))


def _brought(sqnr: LayerSqnr | None) -> str:
    """What the layers in front do to the errors of one, where that is much."""
    if sqnr is None or sqnr.isolated is None or sqnr.cumulative is None or sqnr.isolated - sqnr.cumulative <= FAR:
        return ""
    before = "errors from before bring it to"
    return f"By itself it would reach {decibels(sqnr.isolated)}; {before} {decibels(sqnr.cumulative)}."


def _adds(layer: Layer, rank: int | None, count: int) -> str:
    shares = layer.shares
    if shares is None or rank is None:
        return ""
    if not shares.alone:
        return "It adds no error."
    start = f"Adds {percent(shares.alone)} of the output error (number {rank} of {count})"
    part = (shares.weights or 0.0) / shares.alone
    if layer.kind == "input":
        return f"{start}, by rounding what the network is given."
    if part < 1 - MOSTLY:
        return f"{start}, {'' if shares.weights is None else 'mostly '}by rounding its output."
    if part > MOSTLY:
        return f"{start}, mostly by rounding its weights."
    return f"{start}, by rounding both its weights and its output."


def spelled(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}".replace(",", THIN)
