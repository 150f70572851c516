"""The search on a small network: resumed it is the same, what it writes is a run, and what it cannot do is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mrt
from mrt.cli import UNMET, app
from mrt.config import load_config
from mrt.errors import ConfigError, DataError, MRTError, QuantizationError
from mrt.pipeline import run_pipeline
from mrt.progress import silent
from mrt.quantization.options import ActivationOverride, Override, QuantizationConfig
from mrt.search.explore import Explorer
from mrt.search.laboratory import Laboratory
from mrt.search.outcome import Tuned
from mrt.search.space import alternatives
from tests.search.networks import run_by_numpy, save_run

LONG = 1e6
FEW = "activation.quantizer", "bias_correction"
"""What is tried of the algorithms by tests that look at other trials."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's configuration; nothing is compiled, and the search ends soon."""
    run_by_numpy(monkeypatch)
    monkeypatch.setattr("mrt.search.explore.PATIENCE", 1)
    return save_run(tmp_path)


def tune(config: Path, **options: Any) -> Tuned:
    given: dict[str, Any] = {"metric": "sqnr", "least": 11.0, "objective": "bits", "seconds": LONG, **options}
    return mrt.tune(config, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A search that was neither killed nor short of time, for tests that only look at it."""
    with pytest.MonkeyPatch.context() as patch:
        run_by_numpy(patch)
        patch.setattr("mrt.search.explore.PATIENCE", 1)
        return tune(save_run(tmp_path_factory.mktemp("whole")))


@pytest.fixture
def few_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(config: QuantizationConfig) -> list[tuple[str, QuantizationConfig]]:
        return [(name, changed) for name, changed in alternatives(config) if name.startswith(FEW)]

    monkeypatch.setattr("mrt.search.explore.alternatives", few)


def digests(tuned: Tuned) -> list[str]:
    return [trial.result.digest for trial in tuned.trials]


def source_of(tuned: Tuned) -> Path:
    """The configuration that a search began with."""
    return tuned.configuration.parents[2] / "config.yaml"


def trials_of(config: Path) -> Path:
    return config.parent / "out" / "tune" / "trials.jsonl"


class Killed(BaseException):
    """Ends a search as a signal does: nothing of the search's own catches it."""


def kill_after(count: int, patch: pytest.MonkeyPatch) -> None:
    made, trial = [0], Laboratory.trial

    def counted(self: Laboratory, *arguments: Any) -> Any:
        made[0] += 1
        if made[0] > count:
            raise Killed
        return trial(self, *arguments)

    patch.setattr(Laboratory, "trial", counted)


def test_a_search_that_is_killed_and_resumed_is_the_one_that_was_not(
    config: Path, whole: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whole.finished and whole.meets and len(whole.trials) > 8
    with monkeypatch.context() as patch:
        kill_after(4, patch)
        with pytest.raises(Killed):
            tune(config)
    assert (trials_of(config).parent / "tuned.yaml").is_file()
    content = trials_of(config).read_bytes()
    trials_of(config).write_bytes(content[:-30])  # in the middle of the last line
    with monkeypatch.context() as patch:
        kill_after(3, patch)
        with pytest.raises(Killed):
            tune(config)
    resumed = tune(config)
    assert digests(resumed) == digests(whole)
    assert [t.why for t in resumed.trials] == [t.why for t in whole.trials]
    assert resumed.best.config == whole.best.config
    assert [vars(choice) for choice in resumed.choices] == [vars(choice) for choice in whole.choices]
    again = tune(config)
    assert digests(again) == digests(whole) and again.best.number == whole.best.number


def test_time_says_only_how_many_trials_there_are(config: Path, whole: Tuned) -> None:
    first = tune(config, seconds=0)
    assert len(first.trials) == 1 and not first.finished
    assert digests(whole)[:1] == digests(first) and len(whole.trials) > 1


@pytest.mark.usefixtures("config")
def test_the_configuration_that_is_written_runs_to_the_same_digest(whole: Tuned, tmp_path: Path) -> None:
    assert whole.meets and whole.best.result.cost.bits < 8
    written = load_config(whole.configuration)
    run_pipeline(written, output=tmp_path, last="quantize", report=silent())
    assert mrt.load(tmp_path).digest == whole.best.result.digest
    assert written.output == whole.configuration.parent / "tuned"
    assert written.quantize == whole.best.config
    assert written.data == load_config(source_of(whole)).data


def test_variables_of_the_environment_stay_text_in_what_is_written(config: Path) -> None:
    folder = config.parent / "a ${HOME} folder"
    folder.mkdir()
    moved = save_run(folder)
    assert load_config(tune(moved, seconds=0).configuration).model.path == folder / "net.onnx"


@pytest.mark.usefixtures("few_algorithms")
def test_bits_that_an_algorithm_chooses_are_where_the_search_begins(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As overrides, which the search may take back, and which the sensitivity of other widths does not see."""

    def explicit(self: Laboratory, given: QuantizationConfig) -> QuantizationConfig:
        assert given.more_bits == "auto"
        return given.model_copy(
            update={"more_bits": "none", "overrides": {"x": Override(activation=ActivationOverride(bits=12))}}
        )

    monkeypatch.setattr(Laboratory, "explicit", explicit)
    monkeypatch.setattr(Explorer, "_improve", lambda self, recipe: None)  # the trials before it show it
    tuned = tune(config)
    first = tuned.trials[0]
    assert (first.config.activation_of("x").bits, first.config.more_bits) == (12, "none")
    assert first.result.cost.latency > 1
    item = next(choice for choice in tuned.choices if choice.name == "x")
    assert item.configured == 8 and "% of the error" in item.why
    assert any(trial.config.activation_of("x").bits == 8 for trial in tuned.trials)


def test_samples_that_judge_do_not_calibrate(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the calibration data, or what `calibrate.samples` leaves, or data.validation."""
    sizes = []
    begin = Laboratory.__init__

    def seen(self: Laboratory, work: Any, judging: Any, demand: Any) -> None:
        samples = next(judging.batches(1))["x"]
        sizes.append((work.settings.calibrate.samples, judging.size, samples[0]))
        begin(self, work, judging, demand)

    monkeypatch.setattr(Laboratory, "__init__", seen)
    x = np.load(config.parent / "data.npz")["x"]
    text = config.read_text()
    for change, calibrating, judging, first in (
        ("", 20, 20, 20),
        ("calibrate: {samples: 30}\n", 30, 10, 30),
        ("", None, 15, 45),
    ):
        validation = "  validation: {npz: data.npz, x: x, y: y, slice: [45, 60]}\n" if calibrating is None else ""
        config.write_text(text.replace("  test:", f"{validation}  test:") + change)
        tune(config, seconds=0)
        assert sizes[-1][:2] == (calibrating, judging)
        assert np.array_equal(sizes[-1][2], x[first])


@pytest.mark.usefixtures("few_algorithms")
def test_what_nothing_meets_is_the_nearest_and_exit_status_3(config: Path) -> None:
    arguments = ["tune", str(config), "--metric", "sqnr", "--least", "150", "--seconds", "1000"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == UNMET == 3, result.output
    assert "no trial is known to have an SQNR of at least 150 dB" in result.output
    found = json.loads((trials_of(config).parent / "tuned.json").read_bytes())
    assert not found["meets"] and found["best"]["metric"] == max(entry["metric"] for entry in found["pareto"])


@pytest.mark.usefixtures("config")
def test_what_is_met_is_exit_status_0_with_tables(whole: Tuned, tmp_path: Path) -> None:
    """By the trials of a search that is over."""
    shutil.copytree(whole.configuration.parent, tmp_path / "out" / "tune")
    demand = ["--metric", "sqnr", "--least", "11", "--objective", "bits", "--seconds", "1000"]
    arguments = ["tune", str(source_of(whole)), "--output", str(tmp_path / "out"), *demand]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "bits other than configured" in result.output and "tuned.yaml makes it" in result.output


def test_each_choice_says_why(whole: Tuned) -> None:
    assert sum(choice.share or 0 for choice in whole.choices) == pytest.approx(1)
    weight = next(choice for choice in whole.choices if choice.kind == "weight")
    assert "% of the error" in weight.why and "bits would" in weight.why
    assert weight.alone_db is not None and weight.alone_db > 0
    costs = [trial.result.cost.bits for trial in whole.pareto]
    values = [trial.result.judged.value for trial in whole.pareto]
    assert costs == sorted(costs) and values == sorted(values)


@pytest.mark.usefixtures("few_algorithms")
def test_a_network_that_cannot_be_made_is_a_trial_that_failed(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Laboratory.model

    def refused(self: Laboratory, quantize: Any) -> Any:
        if quantize.activation.quantizer == "affine":
            raise QuantizationError("conv: 34 bits")
        return model(self, quantize)

    monkeypatch.setattr(Laboratory, "model", refused)
    monkeypatch.setattr(Explorer, "_improve", lambda self, recipe: None)  # the trials before it show it
    tuned = tune(config)
    assert {trial.result.failure for trial in tuned.trials} == {"", "conv: 34 bits"}
    assert tuned.meets and not tuned.best.result.failure
    assert digests(tune(config)) == digests(tuned)


def test_trials_that_are_not_made_again_are_refused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tune(config, seconds=0)
    other = Laboratory.model
    weight = tuned.best.config.weight.model_copy(update={"bits": 5})
    changed = tuned.best.config.model_copy(update={"weight": weight})
    monkeypatch.setattr(Laboratory, "model", lambda self, quantize: other(self, changed))
    with pytest.raises(DataError, match=r"trials\.jsonl: the best trial.*remove the file"):
        tune(config, seconds=0)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"objective": "speed"}, ConfigError, "latency, bytes or bits is needed"),
        ({"seconds": -1}, ConfigError, "seconds is -1"),
        ({"seed": 1.5}, ConfigError, "seed is 1.5"),
        ({"metric": "none.py:score", "least": None, "drop": 1.0}, DataError, "none.py does not exist"),
    ],
)
def test_options_that_are_wrong(config: Path, options: dict[str, Any], error: type[MRTError], said: str) -> None:
    with pytest.raises(error, match=said):
        tune(config, **options)


def test_data_that_leaves_nothing_to_judge_by(config: Path) -> None:
    config.write_text(config.read_text() + "calibrate: {samples: 40}\n")
    with pytest.raises(DataError, match=r"calibrate\.samples takes 40, leave too few to judge by"):
        tune(config)


def test_a_bad_metric_function_is_one_line_and_status_1(config: Path) -> None:
    (config.parent / "metric.py").write_text("def score(outputs, labels): return outputs[0]")
    metric = f"{config.parent / 'metric.py'}:score"
    result = CliRunner().invoke(app, ["tune", str(config), "--metric", metric, "--drop", "1"])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1 and "one score for each of 8 samples is needed" in result.stderr


@pytest.mark.slow
def test_the_embedded_example_compiled_runs_to_the_same_digest(tmp_path: Path) -> None:
    """As users run it, with TVM."""
    tuned = mrt.tune("configs/digits.yaml", drop=0.5, seconds=0, output=tmp_path)
    assert tuned.meets and tuned.best.result.milliseconds > 0
    run_pipeline(load_config(tuned.configuration), last="quantize", report=silent())
    assert mrt.load(tmp_path / "tune" / "tuned").digest == tuned.best.result.digest
