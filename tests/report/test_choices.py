"""What is told of each choice is what the integers do when they are made so, the same each time, within bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

import mrt
from mrt.report.facts import Choice, Shares
from mrt.report.measure import choices as measuring
from mrt.report.measure.advice import with_advice
from mrt.report.measure.choices import measured_choices
from mrt.report.measure.measure import _Measuring
from mrt.report.measure.simulated import error_shares
from mrt.report.measure.subject import Subject
from mrt.report.page.page import report_html
from mrt.symbol import NumpyRunner
from tests.made_reports import made_output, made_report
from tests.report.small_network import samples, small_graph, small_subject

SPREAD = 200.0
"""conv1 has one channel so much larger than the others that one scale for all serves these badly."""


def shares(subject: Subject) -> dict[int, Shares]:
    found = error_shares(subject)
    assert found is not None
    return found[0]


@pytest.fixture(scope="module")
def subject() -> Subject:
    return small_subject(SPREAD)


@pytest.fixture(scope="module")
def tried(subject: Subject) -> list[Choice]:
    return [choice for own in measured_choices(subject, shares(subject), 1e-3)[1].values() for choice in own]


def of_integers(code: str = "") -> float:
    """The SQNR of the integer network with an override, on the samples that the simulation holds apart."""
    overrides = {**yaml.safe_load(f"{{{code}}}")}
    config = mrt.QuantizationConfig.model_validate({"preset": "mrt", "overrides": overrides})
    model = mrt.quantize(small_graph(SPREAD), samples(), config, runner=NumpyRunner(), progress=None)
    held = samples()[-2:]
    exact = np.concatenate([small_graph(SPREAD).evaluate({"x": x[None]})[0] for x in held])
    integers = [model.graph.evaluate(model.quantize_inputs({"x": x[None]})) for x in held]
    real = np.concatenate([model.dequantize_outputs(each)[0] for each in integers])
    return float(10 * np.log10(np.square(exact).sum() / np.square(exact - real).sum()))


def test_each_choice_is_told_as_the_integers_are(tried: list[Choice]) -> None:
    assert {choice.what for choice in tried} == {"output", "input", "weights"}
    options = {choice.option for choice in tried}
    assert {"16 bits", "12 bits", "a scale for each channel", "an affine quantizer", "rounding by gptq"} <= options
    best = max(tried, key=lambda each: each.gain)
    worst = min(tried, key=lambda each: each.gain)
    before = of_integers()
    for choice in (best, worst):
        assert choice.sqnr == pytest.approx(of_integers(choice.code), abs=0.7)
        assert choice.gain == pytest.approx(of_integers(choice.code) - before, abs=0.7)
    assert best.gain > 1


def test_the_same_network_gets_the_same_numbers(subject: Subject, tried: list[Choice]) -> None:
    again = measured_choices(small_subject(SPREAD), shares(subject), 1e-3)[1]
    assert [choice for own in again.values() for choice in own] == tried


def test_costs_are_those_of_wider_tensors(tried: list[Choice]) -> None:
    """A tensor of 4 x 8 x 8 bytes takes as many more in 16 bits; nothing changes below 8."""
    wide = next(each for each in tried if each.name == "conv1" and each.option == "16 bits")
    assert (wide.tensor_bytes, wide.parameter_bytes) == (4 * 8 * 8, 0)
    assert wide.operations > 0 and wide.seconds == pytest.approx(1e-3 * wide.operations, rel=1e-3)
    weights = next(each for each in tried if each.what == "weights" and each.option == "12 bits")
    assert weights.parameter_bytes in (4 * 3 * 9, 4 * 4 * 9) and weights.tensor_bytes == 0


def test_of_a_large_network_fewer_layers_are_tried_and_told(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shares(subject)
    operations = measuring.network_operations(subject.prepared)
    monkeypatch.setattr(measuring, "LONGEST", 1.5 * measuring.CHOICES * operations)
    told, tried = measured_choices(subject, found, None)
    assert len(told.layers) == len(tried) == 1 and "only 1 of" in told.left_out[0]
    assert all(choice.seconds is None for own in tried.values() for choice in own)
    monkeypatch.setattr(measuring, "LONGEST", 0.5 * measuring.CHOICES * operations)
    with pytest.raises(ValueError, match="would take about"):
        measured_choices(subject, found, None)
    with pytest.raises(ValueError, match="no calibration data"):
        measured_choices(replace(subject, calibration=None), found, None)


def test_a_report_shows_them_and_advises_the_best(subject: Subject) -> None:
    report = _Measuring(subject).report()
    layers = with_advice(report.layers, [made_output("y", 20.0)])
    worst = max((layer for layer in layers if layer.choices), key=lambda each: each.shares.alone if each.shares else 0)
    assert worst.choices is not None and worst.advice is not None
    assert f"{max(choice.gain for choice in worst.choices):.1f} dB, as simulated" in worst.advice
    html = report_html(report)
    assert "What mrt tune may change of it" in html and "simulated on 2 samples of data.calibration" in html.replace(
        "\u202f", " "
    )
    bare = report_html(made_report(["a", "b"], choices=None, missing={"choices": "that is too large"}))
    assert "That is too large." in bare
