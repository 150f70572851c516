"""What the page says of each layer: its row, and its facts in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrt.report.facts import Bits, Choice, Layer, ProvenTensor, Report
from mrt.report.page import names
from mrt.report.page.numbers import decibels, duration, integer, millions, number, percent, precise, size, span
from mrt.report.page.packing import short
from mrt.report.page.words import layer_over, layer_said, layer_title, sentence, spelled

Facts = list[tuple[str, list[tuple[str, str]]]]
"""Groups with their title, of names and values."""


@dataclass(frozen=True)
class Row:
    """A layer in the waterfall. rank: from 1; left: where its bar starts, as a share of the error of all together."""

    layer: Layer
    title: str
    rank: int
    left: float

    @property
    def output(self) -> float:
        return self.layer.shares.output if self.layer.shares else 0.0

    @property
    def weights(self) -> float:
        return (self.layer.shares.weights or 0.0) if self.layer.shares else 0.0

    @property
    def share(self) -> float:
        return self.output + self.weights


def ranked(layers: Sequence[Layer]) -> list[Row]:
    """The layers whose share is known, the worst first."""
    known = [layer for layer in layers if layer.shares is not None]
    found, left = [], 0.0
    for rank, layer in enumerate(sorted(known, key=lambda each: -_alone(each)), 1):
        found.append(Row(layer, layer_title(layer), rank, left))
        left += found[-1].share
    return found


def _alone(layer: Layer) -> float:
    return layer.shares.alone if layer.shares else 0.0


def layer_texts(layer: Layer, report: Report, rows: Mapping[int, Row]) -> dict[str, Any]:
    """All that is said of a layer, and the two widths that the headroom's chart shows of it."""
    place = rows.get(layer.id)
    return {
        "name": layer.name,
        "over": layer_over(layer),
        "said": layer_said(layer, place.rank if place else None, len(rows)),
        "why": _whys(layer),
        "choices": [_choice_cells(each) for each in layer.choices or ()],
        "facts": facts_of(layer, report),
        "tell": _told(layer),
        "widths": _widths(layer),
    }


def _whys(layer: Layer) -> list[str]:
    """Why each has its bits, and what would help."""
    found = [f"{bits.what.capitalize()}: {bits.chosen} bits. {sentence(bits.why)}" for bits in layer.bits if bits.why]
    return found + ([f"What would help: {sentence(layer.advice)}"] if layer.advice else [])


def _choice_cells(choice: Choice) -> list[str]:
    """A choice as a line of a table."""
    owner = {"output": "output", "weights": "weights", "input": f"input {names.row(choice.name)}"}[choice.what]
    cost = [f"{percent(choice.operations)}"] if choice.operations else []
    cost += [f"≈ {duration(choice.seconds)}"] if choice.seconds else []
    cost += [size(each) for each in (choice.parameter_bytes, choice.tensor_bytes) if each]
    gain = f"{'−' if choice.gain < 0 else '+'}{number(abs(choice.gain))} dB"
    return [f"{owner}: {choice.option}", decibels(choice.sqnr), gain, ", ".join(cost) or "none", choice.code]


def _told(layer: Layer) -> str:
    """What hovering over a layer tells."""
    lines = [f"{names.row(layer.name)} · {layer_title(layer)}"]
    if layer.sqnr is not None:
        lines += [f"isolated {decibels(layer.sqnr.isolated)}", f"cumulative {decibels(layer.sqnr.cumulative)}"]
    if layer.shares is not None:
        lines.append(f"{percent(layer.shares.alone)} of the output error")
    return "\n".join(lines)


def _widths(layer: Layer) -> dict[str, Any]:
    """The proven and the seen widths of the widest sum and product, in bits."""
    found: dict[str, Any] = {}
    for name, tensor in (("sum", layer.headroom.sum), ("product", layer.headroom.product)):
        found[name] = None if tensor is None else [short(tensor.bits), tensor.seen_bits and short(tensor.seen_bits)]
    lines = [names.row(layer.name)]
    for title, tensor in (("widest sum", layer.headroom.sum), ("widest product", layer.headroom.product)):
        if tensor is not None:
            seen = f", {number(tensor.seen_bits)} seen" if tensor.seen_bits is not None else ""
            lines.append(
                f"{title}: {number(tensor.bits)} bits proven{seen}\n  [{integer(tensor.lo)}, {integer(tensor.hi)}]"
            )
    return found | {"tell": "\n".join(lines)}


# Facts in words


def facts_of(layer: Layer, report: Report) -> Facts:
    """What is known of a layer, in groups; what is not known is left out."""
    groups = (
        ("Integers", _integers(layer)),
        ("Error", _error(layer, report)),
        ("Widest sum", _bounds(layer.headroom.sum)),
        ("Cost", _cost(layer)),
        ("Widest rescaling product", _bounds(layer.headroom.product)),
        ("Place", _place(layer, report)),
    )
    return [(title, rows) for title, rows in groups if rows]


def _integers(layer: Layer) -> list[tuple[str, str]]:
    found = [(f"{bits.what.capitalize()} bits", f"{bits.chosen}{_asked(bits)}") for bits in layer.bits]
    form = layer.form
    if form is not None:
        scale = number(form.scale)
        several = f"{scale} to {number(form.scale_most)}, {form.scale_count} of them"
        found += [
            ("Dtype", f"{form.dtype}, {integer(form.lo)} to {integer(form.hi)}"),
            ("Scale", scale if form.scale_count == 1 else several),
            ("Zero point", integer(form.zero_point)),
            ("Range", f"{number(form.real_lo)} to {number(form.real_hi)}"),
        ]
        if form.calibrated is not None:
            found.append(("Calibrated", " to ".join(map(number, form.calibrated))))
    if layer.rescaling is not None:
        names_ = (("Multipliers", layer.rescaling.multipliers), ("Right shifts", layer.rescaling.shifts))
        found += [(name, span(pair)) for name, pair in names_ if pair is not None]
    return found


def _error(layer: Layer, report: Report) -> list[tuple[str, str]]:
    found = []
    if layer.shares is not None:
        found.append(("Share of the error", percent(layer.shares.alone)))
        outputs = report.error.outputs if report.error else []
        if len(outputs) > 1:
            by_output = zip(outputs, layer.shares.by_output, strict=False)
            found += [(f"at {names.row(name)}", percent(share)) for name, share in by_output]
    if layer.sqnr is not None:
        found += [("Isolated", decibels(layer.sqnr.isolated)), ("Cumulative", decibels(layer.sqnr.cumulative))]
        if layer.sqnr.worst_steps is not None:
            found.append(("Largest error", f"{number(layer.sqnr.worst_steps)} steps"))
    if layer.values is not None:
        found.append(("Clipped", precise(layer.values.clipped) if layer.values.clipped else "none"))
        if layer.values.errors is not None:
            found.append(("Mean error", f"{number(layer.values.errors.mean)} steps"))
    if layer.weights is not None:
        found += [("Weights", decibels(layer.weights.sqnr)), ("Weights that are 0", percent(layer.weights.zeros))]
    if layer.correction is not None:
        found.append(("Biases moved by", " to ".join(map(number, layer.correction))))
    return found


def _bounds(tensor: ProvenTensor | None) -> list[tuple[str, str]]:
    if tensor is None:
        return []
    found = [
        ("Proven", room(tensor)),
        ("Least", integer(tensor.lo)),
        ("Greatest", integer(tensor.hi)),
        ("Follows from", tensor.rule),
        ("Tensor", names.shortened(tensor.name, 40)),
    ]
    if tensor.seen is not None:
        found[3:3] = [("Seen", span(tensor.seen)), ("", f"{number(tensor.seen_bits)} bits")]
    return found


def _asked(bits: Bits) -> str:
    if bits.asked is None:
        return ""
    return ", as asked" if bits.asked == bits.chosen else f", {bits.asked} asked"


def room(tensor: ProvenTensor) -> str:
    return f"{number(tensor.bits)} bits, {number(max(0.0, 32 - tensor.bits))} to spare"


def _cost(layer: Layer) -> list[tuple[str, str]]:
    found = []
    if layer.bytes:
        found.append(("Parameters", size(layer.bytes)))
    if layer.products:
        found.append(("Multiplications", millions(layer.products)))
    if layer.seconds is not None:
        share = "" if layer.time_share is None else f", {percent(layer.time_share)}"
        found.append(("Time", f"{duration(layer.seconds)}{share}"))
    return found


def _place(layer: Layer, report: Report) -> list[tuple[str, str]]:
    read = [names.row(report.layers[i].name) for i in layer.reads if i < len(report.layers)]
    found = [("Reads", ", ".join(read))] if read else []
    if layer.source is not None:
        found.append(("In the file", names.shortened(layer.source, 60)))
    if layer.form is not None and layer.form.tensor != layer.name:
        found.append(("Integer tensor", names.shortened(layer.form.tensor, 60)))
    if len(layer.symbols) > 1:
        found.append(("Operators", spelled(len(layer.symbols), "symbol")))
    return found
