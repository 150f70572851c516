"""The stage that measures: what stands in report.json is what the saved files and the data give; it fails no run."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.report.facts import Report, read_report
from tests.pipeline.runs import copied, run, said

STAGE = importlib.import_module("mrt.stages.report")
BEST = "quantize.preset=best"
MEASURE = importlib.import_module("mrt.report.measure.measure")


@pytest.fixture(scope="module")
def reported(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its report, by the preset that most networks have."""
    folder = copied(finished, tmp_path_factory.mktemp("reported") / "run")
    run(folder, "report=true", BEST, first="quantize")
    return folder


@pytest.fixture
def report(reported: Path) -> Report:
    found = read_report(reported / "out", mrt.load(reported / "out").digest)
    assert found is not None
    return found


def test_a_report_says_what_the_model_and_the_data_say(reported: Path, report: Report) -> None:
    model = mrt.load(reported / "out")
    assert [layer.kind for layer in report.layers] == ["input", "convolution", "dense"]
    assert set(report.missing) == {"trials"}
    with np.load(reported / "data.npz") as data:
        samples = data["x"][20:]
    walked: dict[str, list[np.ndarray]] = {}
    for sample in samples:
        for symbol, value in model.graph.walk(model.quantize_inputs(sample[None])):
            walked.setdefault(symbol.name, []).append(value)
    assert report.samples == len(samples)
    for tensor in report.tensors:
        fact, values = model.certificate.tensors[tensor.name], np.concatenate(walked[tensor.name])
        assert (tensor.lo, tensor.hi, tensor.rule) == (fact.lo, fact.hi, fact.rule)
        assert tensor.seen == [values.min(), values.max()]
    headroom, rescaling = report.layers[1].headroom, report.layers[1].rescaling
    assert headroom.sum is not None and headroom.product is not None and rescaling is not None
    assert (headroom.sum.operator, headroom.product.operator) == ("broadcast_add", "broadcast_mul")
    assert headroom.sum.bits < 31 < headroom.product.bits and report.proof.spare_bits == round(
        32 - headroom.sum.bits, 2
    )
    assert rescaling.multipliers is not None and headroom.product.bits <= headroom.sum.bits + np.log2(
        rescaling.multipliers[1]
    )
    given = report.layers[0]
    assert given.form is not None and given.values is not None and given.sqnr is not None
    steps = np.concatenate(walked[given.form.tensor]).astype(np.float64) - given.form.zero_point
    error = np.square(samples - given.form.scale * steps).sum()
    assert given.sqnr.cumulative == pytest.approx(10 * np.log10(np.square(samples).sum() / error), abs=0.01)
    assert given.sqnr.isolated == pytest.approx(given.sqnr.cumulative, abs=0.01)
    assert (given.values.lo, given.values.hi) == pytest.approx((samples.min(), samples.max()), rel=1e-3)
    summary = json.loads((reported / "out" / "summary.json").read_bytes())
    assert report.accuracy is not None and report.accuracy.float_top1 == pytest.approx(summary["float"]["top1"])
    assert report.outputs is not None and report.outputs[0].sqnr == pytest.approx(summary["sqnr_db"], abs=0.01)


def test_shares_add_up_and_time_is_told_of_every_layer_that_computes(report: Report) -> None:
    assert report.error is not None and report.time is not None
    shares = [layer.shares for layer in report.layers if layer.shares is not None]
    assert len(shares) == 3 and 0.5 < report.error.alone < 2
    assert sum(each.alone for each in shares) == pytest.approx(report.error.alone, rel=1e-3)
    assert shares[0].weights is None and all(each.weights for each in shares[1:])
    weights = report.layers[1].weights
    assert weights is not None and weights.sqnr is not None and weights.sqnr > 35
    assert [note.kind for note in report.notes].count("fine") >= 1 and all(note.title for note in report.notes)
    assert {function.layer for function in report.time.functions} >= {1, 2}
    assert sum(layer.time_share or 0 for layer in report.layers) == pytest.approx(1, abs=1e-3)


def test_a_report_is_of_one_model_and_made_once(reported: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(reported, copy)
    assert "nothing is done" in said(copy, "report=true", BEST)
    assert read_report(copy / "out", "another") is None
    pages = ("report.json", "report.html", "report.md")
    assert all("conv" in (copy / "out" / name).read_text() for name in pages)
    run(copy, "quantize.activation.bits=7", last="quantize")
    assert not any((copy / "out" / name).exists() for name in pages)


def test_a_page_that_cannot_be_made_costs_no_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(report: Report) -> None:
        raise RuntimeError("no words")

    monkeypatch.setattr(STAGE, "page_files", broken)
    assert "the page could not be made (RuntimeError: no words)" in said(copy, "report=true", first="report")
    assert read_report(copy / "out") is not None and not (copy / "out" / "report.html").exists()


def test_what_cannot_be_measured_is_left_out_with_its_reason(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(subject: object) -> None:
        raise RuntimeError("no room\nfor it")

    monkeypatch.setattr(MEASURE, "error_shares", broken)
    monkeypatch.setattr(MEASURE, "latency_of", broken)
    run(copy, "report={samples: 3}", "data.test.y=null", first="evaluate")
    found = read_report(copy / "out")
    assert found is not None and found.error is None and found.time is None and found.samples == 3
    assert found.missing["layers.shares"] == "RuntimeError: no room for it"
    assert "accuracy.difference" in found.missing and found.accuracy is not None
    assert all(layer.shares is None and layer.values is not None for layer in found.layers)
