"""Metrics and demands, by hand; what is wrong with them is said."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from mrt.errors import ConfigError, DataError
from mrt.search.metric import Outputs, demand

SCORES = np.array([[3, 1], [0, 2], [1, 4], [5, 2]], np.float32)
LABELS = np.array([0, 1, 0, 0])


def outputs(array: np.ndarray) -> Outputs:
    return Outputs([array], [array])


def test_top1_falls_in_percentage_points_with_the_error_of_the_paired_difference() -> None:
    wanted = demand("top1", 30.0, None)
    worse = SCORES[:, ::-1].copy()
    worse[3] = SCORES[3]
    reference = wanted.of_float(outputs(SCORES), LABELS)
    found = wanted.of_integer(outputs(worse), [SCORES], LABELS)
    falls = [100.0, 100.0, -100.0, 0.0]
    judged = wanted.judge(reference, found)
    assert (judged.reference, judged.value) == (75.0, 50.0)
    assert judged.shortfall == pytest.approx(mean(falls) - 30)
    assert judged.error == pytest.approx(stdev(falls) / math.sqrt(4))
    assert not judged.is_met
    assert wanted.judge(reference, reference).is_met
    assert wanted.coarse(4) == "" and wanted.coarse(3).startswith("3 samples judge, of which each is 33 points")


def test_sqnr_and_its_error_are_those_of_repeated_experiments() -> None:
    """Of many sets of samples the mean error that is said is the deviation that they have."""
    random, wanted = np.random.default_rng(0), demand("sqnr", None, 20.0)
    values, errors = [], []
    for _ in range(300):
        logits = random.normal(size=(200, 5)).astype(np.float32)
        noisy = logits + (random.normal(size=(200, 5)) * random.gamma(1, 0.1, (200, 1))).astype(np.float32)
        reference = wanted.of_float(outputs(logits), None)
        judged = wanted.judge(reference, wanted.of_integer(outputs(noisy), [logits], None))
        ratio = np.square(logits.astype(float)).sum() / np.square(noisy.astype(float) - logits).sum()
        assert judged.value == pytest.approx(10 * math.log10(ratio))
        assert judged.shortfall == pytest.approx(20 - judged.value)
        values.append(judged.value)
        errors.append(judged.error)
    assert mean(errors) == pytest.approx(stdev(values), rel=0.15)


def test_no_error_meets_any_sqnr() -> None:
    wanted = demand("sqnr", None, 90.0)
    signal = wanted.of_float(outputs(SCORES), None)
    assert wanted.judge(signal, np.zeros(4)).is_met


@pytest.mark.parametrize(
    ("metric", "drop", "least", "said"),
    [
        ("sqnr", 0.5, None, "say least DB"),
        ("sqnr", None, None, "say least DB"),
        ("top1", None, None, "needs drop"),
        ("top1", 0.5, 30.0, "least is for metric sqnr"),
        ("top5", 0.5, None, "top1, sqnr or file.py:function is needed"),
        ("top1", math.nan, None, "drop is nan: a finite number"),
    ],
)
def test_options_that_do_not_fit(metric: str, drop: float | None, least: float | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        demand(metric, drop, least)


FUNCTIONS = """
from sign_of_scores import SIGN
def good(outputs, labels): return [SIGN * abs(float(row[0])) for row in outputs[0]]
def short(outputs, labels): return [1.0]
def text(outputs, labels): return "best"
def nothing(outputs, labels): return float("nan") * outputs[0][:, 0]
def fails(outputs, labels): raise KeyError("iou")
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sign_of_scores.py").write_text("SIGN = -1.0")
    (tmp_path / "metric.py").write_text(FUNCTIONS)
    return tmp_path / "metric.py"


def test_a_function_gives_the_scores_of_samples(file: Path) -> None:
    wanted = demand(f"{file}:good", 0.25, None)
    reference = wanted.of_float(outputs(SCORES), LABELS)
    assert reference.tolist() == [-3, 0, -1, -5]
    assert wanted.judge(reference, reference - 0.25).is_met
    assert not wanted.judge(reference, reference - 0.26).is_met


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("short", r"metric.py:short: it gave shape \[1\]; one score for each of 4 samples is needed"),
        ("text", "metric.py:text: it gave a str; one score for each of 4 samples is needed"),
        ("nothing", "metric.py:nothing: the score of a sample is NaN"),
        ("fails", "metric.py:fails: the function raised KeyError: 'iou'"),
    ],
)
def test_a_function_that_gives_something_else_is_named(file: Path, function: str, said: str) -> None:
    wanted = demand(f"{file}:{function}", 1.0, None)
    with pytest.raises(DataError, match=said):
        wanted.of_float(outputs(SCORES), LABELS)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("metric.py:number", "has no function number"),
        ("metric.py:other", "has no function other"),
        ("none.py:good", "does not exist"),
    ],
)
def test_a_function_that_is_not_there_is_named(file: Path, name: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        demand(str(file.parent / name), 1.0, None)


def test_labels_are_needed_for_top1() -> None:
    with pytest.raises(DataError, match="top1 needs labels"):
        demand("top1", 0.5, None).of_float(outputs(SCORES), None)
