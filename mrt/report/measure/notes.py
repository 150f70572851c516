"""What a reader should know and may do, in words: the worst first; what was done, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrt.messages import counted
from mrt.model_page import is_internal
from mrt.report.facts import Layer, Note, Report
from mrt.report.measure.advice import CLIPPED, are_good, clips, is_by_weights, override

MUCH, FEW = 0.6, 4
"""So few layers that make so much of the error are worth a line of their own."""
BEHIND = 10.0
"""Decibels by which a part of an output is behind the whole, so that it is told."""
SLOW = 0.2
"""A function that takes this share of the time is told."""
CHANCE = 1.96
"""Standard errors within which a difference may be chance: 95 %."""
LEFT_OUT = 0.02
"""A quantizer that holds so much less than calibration found leaves it out on purpose."""
ADVICE = "quantize:\n  overrides:\n"


def notes_of(report: Report, given: Sequence[str]) -> list[Note]:
    """given: the notes of the model, as its quantization left them."""
    warnings = [*_of_accuracy(report), *_of_parts(report)]
    made = [*_of_shares(report), *_of_clipping(report), *_of_time(report)]
    fine = [*_of_full_products(report)]
    return [*warnings, *made, *_given(given, report), *fine]


def _of_accuracy(report: Report) -> Iterator[Note]:
    accuracy = report.accuracy
    if accuracy is None or accuracy.difference is None or accuracy.standard_error is None:
        return
    points, noise = 100 * accuracy.difference, 100 * CHANCE * accuracy.standard_error
    text = (
        f"Of {accuracy.samples} samples only the float network gets {accuracy.lost} right, "
        f"only the integer one {accuracy.won}."
    )
    if points < -noise:
        yield Note(
            kind="warning", title=f"Accuracy falls by {-points:.2f} points, more than chance explains", text=text
        )
    elif not points:
        yield Note(kind="fine", title="No accuracy is lost on the test data", text=text)
    else:
        word = "gains" if points > 0 else "loses"
        title = f"The integer network {word} {abs(points):.2f} points of accuracy"
        more = " That is more than chance explains." if points > noise else " Chance alone may do that."
        yield Note(kind="fine", title=title, text=text + more)


def _of_parts(report: Report) -> Iterator[Note]:
    for output in report.outputs or ():
        behind = [
            part
            for part in output.parts
            if part.sqnr is not None and output.sqnr is not None and part.sqnr < output.sqnr - BEHIND
        ]
        if behind:
            said = ", ".join(f"{part.name} {part.sqnr:.1f} dB" for part in behind)
            yield Note(
                kind="warning",
                title=f"A part of output {output.name} is much less accurate than the whole",
                text=f"The whole has {output.sqnr:.1f} dB, but {said}: larger values beside it hide its error.",
            )


def _of_shares(report: Report) -> Iterator[Note]:
    ranked = sorted((each for each in report.layers if each.shares), key=_share, reverse=True)
    total = sum(map(_share, ranked))
    worst: list[Layer] = []
    while ranked and total and sum(map(_share, worst)) < MUCH * total:
        worst.append(ranked[len(worst)])
    is_good = are_good(report.outputs)
    if not worst or len(worst) > FEW or len(worst) == len(ranked):
        return
    part = sum(map(_share, worst)) / total
    names = _listed([each.name for each in worst])
    yield Note(
        kind="fine" if is_good or any(map(clips, worst)) else "try",
        title=f"{names} {'make' if worst[1:] else 'alone makes'} {part:.0%} of the error",
        text=f"{_causes(worst)} The other {len(ranked) - len(worst)} layers make the rest."
        + (
            ""
            if is_good or any(map(clips, worst))
            else " With these bits there the error falls by about as much, at a cost of time."
        ),
        code="" if is_good or any(map(clips, worst)) else ADVICE + "".join(map(override, worst)),
        layers=[each.id for each in worst],
    )


def _share(layer: Layer) -> float:
    return 0.0 if layer.shares is None else layer.shares.alone


def _causes(layers: Sequence[Layer]) -> str:
    by_weights = sum(map(is_by_weights, layers))
    if not by_weights:
        return "It is the rounding of what they give." if layers[1:] else "It is the rounding of what it gives."
    if by_weights == len(layers):
        return "It is the rounding of their weights." if layers[1:] else "It is the rounding of its weights."
    return "It is the rounding of what they give and of their weights."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _of_clipping(report: Report) -> Iterator[Note]:
    clipped = [each for each in report.layers if each.values is not None and each.values.clipped >= CLIPPED]
    for layer in sorted(clipped, key=lambda each: -(each.values.clipped if each.values else 0))[:FEW]:
        share = layer.values.clipped if layer.values else 0.0
        yield Note(
            kind="warning",
            title=f"{share:.1%} of the values of {layer.name} are beyond its range",
            text=f"They saturate. {_why_clipped(layer)}",
            layers=[layer.id],
        )


def _why_clipped(layer: Layer) -> str:
    form = layer.form
    if form is None or form.calibrated is None:
        return "Its range is given by the network or the options."
    (lo, hi), held = form.calibrated, form.real_hi - form.real_lo
    if lo < form.real_lo - LEFT_OUT * held or hi > form.real_hi + LEFT_OUT * held:
        return (
            f"Calibration found [{lo:.3g}, {hi:.3g}], and its integers hold [{form.real_lo:.3g}, {form.real_hi:.3g}]: "
            "the rest was left out on purpose, as values that its readers cut or hardly tell apart, or by "
            "calibrate.method."
        )
    return "Calibration saw less than that; give it more samples (calibrate.samples)."


def _of_time(report: Report) -> Iterator[Note]:
    is_whole = "time.functions.seconds" not in report.missing
    functions = report.time.functions if report.time is not None and is_whole else []
    slow = [each for each in functions if each.share is not None and each.share >= SLOW and len(functions) > FEW]
    for function in sorted(slow, key=lambda each: -(each.share or 0))[:2]:
        rate = "" if function.rate is None else f", at {function.rate / 1e9:.0f} billion multiplications a second"
        peak = "" if function.of_peak is None else f", {function.of_peak:.0%} of what a core can do"
        yield Note(
            kind="try",
            title=f"{function.outputs[0]} takes {function.share:.0%} of the time",
            text=f"It computes {' + '.join(function.operators)}{rate}{peak}. compile.tune measures other tilings.",
            code="compile:\n  tune: {trials: 64}\n",
            layers=[] if function.layer is None else [function.layer],
        )


def _given(notes: Sequence[str], report: Report) -> Iterator[Note]:
    """The notes that quantization left: what it did, and of use to developers what it did not."""
    seconds = report.seconds.get("quantize")
    for note in notes:
        title, _, text = note.partition(": ")
        yield Note(kind="internal" if is_internal(note) else "done", title=title, text=text)
    corrected = sum(each.correction is not None for each in report.layers)
    if corrected:
        method = report.settings.get("quantize", {}).get("bias_correction", "")
        cost = "" if seconds is None else f" Stage quantize took {seconds:.1f} s in all; the network does no more work."
        yield Note(
            kind="done",
            title=f"The means of the outputs of {counted(corrected, 'layer')} were moved back",
            text=f"bias_correction: {method} adds to the biases what rounding had taken from them.{cost}",
        )


def _of_full_products(report: Report) -> Iterator[Note]:
    proof = report.proof
    if proof.full_products:
        yield Note(
            kind="fine",
            title=f"{proof.full_products} of {proof.products} rescaling products fill 32 bits, on purpose",
            text="Their multipliers are as wide as the proof allows, which rescales most precisely. Nothing overflows.",
        )
