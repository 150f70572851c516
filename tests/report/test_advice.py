"""What is advised of a layer: more bits where its rounding makes much of an error that counts, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mrt.report.facts import Bits, Layer, Output, Shares
from mrt.report.measure.advice import override, with_advice
from tests.made_reports import made_output, made_report


def layer(output: float, weights: float | None, clipped: float = 0.0, bits: Sequence[int] = (8, 8)) -> Layer:
    made = made_report(["conv"]).layers[0]
    assert made.values is not None
    given = [
        Bits(what=what, name=f"conv_{what}", asked=8, chosen=chosen, why="")
        for what, chosen in zip(("activation", "weight"), bits, strict=True)
    ]
    shares = Shares(output=output, weights=weights, alone=output + (weights or 0.0), by_output=[None])
    values = made.values.model_copy(update={"clipped": clipped})
    return made.model_copy(update={"bits": given, "shares": shares, "values": values, "advice": None, "choices": None})


def advice(of: Layer, outputs: Sequence[Output] | None = None) -> str | None:
    (found,) = with_advice([of], [made_output("y", 25.0)] if outputs is None else outputs)
    return found.advice


def test_the_rounding_that_makes_most_is_what_more_bits_are_for() -> None:
    """Without half of the error the outputs gain 3.0 dB."""
    assert (
        advice(layer(0.5, 0.1))
        == "16 bits for what it gives would raise the outputs by about 3.0 dB, at a cost of time"
    )
    assert (
        advice(layer(0.1, 0.75)) == "12 bits for its weights would raise the outputs by about 6.0 dB, at a cost of time"
    )
    assert override(layer(0.1, 0.75)) == '    "conv_weight": {weight: {bits: 12}}\n'
    assert override(layer(0.5, None)) == '    "conv_activation": {activation: {bits: 16}}\n'


@pytest.mark.parametrize(
    "of",
    [
        layer(0.01, 0.02),  # makes little
        layer(0.5, 0.1, clipped=0.01),  # no bits bring back what is clipped
        layer(0.5, 0.1, bits=(16, 8)),  # has them already
        layer(0.1, 0.5, bits=(8, 12)),
    ],
)
def test_nothing_is_advised_that_would_not_help(of: Layer) -> None:
    assert advice(of) is None


def test_nothing_is_advised_where_all_outputs_are_good() -> None:
    assert advice(layer(0.5, 0.1), [made_output("y", 45.0), made_output("z", None)]) is None
    assert advice(layer(0.5, 0.1), [made_output("y", 45.0), made_output("z", 20.0)]) is not None
