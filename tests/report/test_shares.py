"""Shares of layers: of weights that are cut into slices, and of the worst where there is no time for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mrt
from mrt.report.facts import ErrorGroup
from mrt.report.measure import simulated
from mrt.report.measure.simulated import error_shares
from mrt.report.measure.weights import layer_weights
from mrt.report.page.page import report_html
from mrt.symbol import NumpyRunner
from tests.made_reports import made_report, names
from tests.report.small_network import samples, small_graph, small_subject

SLICED = mrt.QuantizationConfig.model_validate({"preset": "mrt", "weight": {"granularity": {"channel": 2}}})


def test_weights_in_slices_have_shares() -> None:
    graph = small_graph()
    model = mrt.quantize(graph, samples(), SLICED, runner=NumpyRunner(), progress=None)
    subject = replace(small_subject(), model=model, asked=SLICED, chosen=SLICED)
    shapes = {value.shape for value in model.graph.parameters.values() if value.ndim == 4}
    assert (4, 2, 3, 3) in shapes and (4, 4, 3, 3) not in shapes
    weights = layer_weights(subject.layers, graph, model)
    for name in ("conv1", "conv2", "conv3"):
        given = graph.parameters[f"{name}_weight"]
        largest = np.abs(given).max(axis=(1, 2, 3), keepdims=True)
        assert (
            np.abs(weights[name].real - given).max() <= 0.6 * (largest / 127).max()
        )  # half a step, and what fitting it adds
    found = error_shares(subject)
    assert found is not None
    assert all(
        (found[0][layer.place].weights or 0) > 0 for layer in subject.layers if layer.head.name.startswith("conv")
    )


def test_the_worst_layers_are_found_by_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = small_subject(200.0)
    whole = error_shares(subject)
    monkeypatch.setattr(simulated, "FEW_SECONDS", 0.0)
    found = error_shares(replace(subject, seconds={}))
    assert whole is not None and found is not None
    worst = max(whole[0], key=lambda place: whole[0][place].alone)
    shares, totals = found
    assert max(shares, key=lambda place: shares[place].alone) == worst
    assert shares[worst].alone == pytest.approx(whole[0][worst].alone, rel=0.3)
    told = sorted([*shares, *(place for group in totals.groups for place in group.layers)])
    assert told == sorted(whole[0]) and totals.samples >= 1
    again = error_shares(replace(small_subject(200.0), seconds={}))
    assert again == found
    monkeypatch.setattr(simulated, "MOST_SECONDS", 0.0)
    with pytest.raises(ValueError, match="would take about"):
        error_shares(replace(subject, seconds={}))


def test_the_page_shows_what_was_not_told_apart() -> None:
    report = made_report(names(6))
    assert report.error is not None
    layers = [layer.model_copy(update={"shares": None}) if layer.id > 3 else layer for layer in report.layers]
    error = report.error.model_copy(update={"groups": [ErrorGroup(layers=[4, 5], share=0.01)]})
    html = report_html(report.model_copy(update={"layers": layers, "error": error}))
    assert "layers, from layer4 to layer5" in html and "found by halving" in html
