"""Algorithms are a seam: one of each kind, from one file, does what it says; options name them, and list them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt import algorithm_registry
from mrt.algorithm_registry import algorithm, names_of
from mrt.config import RunConfig
from mrt.errors import ConfigError, DataError, QuantizationError
from mrt.pipeline import run_pipeline
from mrt.progress import silent
from mrt.quantization.algorithms.algorithm import Rounding, UnroundedWeight
from mrt.quantization.algorithms.nearest_rounding import nearest_integers
from mrt.quantization.algorithms.needs import needs_of
from mrt.quantization.plan.make import observed_tensors
from mrt.stages import STAGES, Run
from mrt.steps import STEPS
from mrt.symbol import Array, Graph, NumpyRunner
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from mrt.workspace import Workspace
from tests.pipeline.runs import CONFIG, config_of, save_data, save_network
from tests.quantization.networks import chain

RNG = np.random.default_rng(3)
FIRST, SECOND = (RNG.normal(0.1, 0.5, shape).astype(np.float32) for shape in ((6, 5), (3, 6)))
X = RNG.normal(0.4, 1.0, (40, 5)).astype(np.float32) * np.float32([1, -1, 1, 2, -3])
TOYS = "tests.quantization.toy_algorithms"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of the file, for as long as the test runs."""
    names_of("calibrate.method")
    known = {option: dict(entries) for option, entries in algorithm_registry._ALGORITHMS.items()}
    monkeypatch.setattr(algorithm_registry, "_ALGORITHMS", known)
    sys.modules.pop(TOYS, None)
    importlib.import_module(TOYS)
    yield
    sys.modules.pop(TOYS, None)


def network() -> Graph:
    return chain(
        (1, 5),
        (FullyConnected(num_hidden=6, no_bias=True), [FIRST]),
        (Relu(), []),
        (FullyConnected(num_hidden=3, no_bias=True), [SECOND]),
    )


def quantize(quantization: dict[str, object] | None = None, method: str = "max") -> mrt.QuantizedModel:
    config = mrt.QuantizationConfig.model_validate({"preset": "mrt", **(quantization or {})})
    return mrt.quantize(network(), [X], config, mrt.CalibrationConfig(method=method), runner=NumpyRunner())


def weight_of(model: mrt.QuantizedModel, layer: str) -> Array:
    """What the integers of a layer's weight stand for, from the scales of what it reads and gives."""
    symbol = model.graph.by_name[layer]
    integers = model.graph.parameters[symbol.inputs[1].name].astype(np.float64)
    scale = model.scales[layer].reshape(-1) / model.scales[symbol.inputs[0].name].reshape(-1)
    return integers * scale[:, None]


def real_outputs(model: mrt.QuantizedModel) -> Array:
    rows = [model.graph.evaluate(model.quantize_inputs(sample[None]))[0] for sample in X]
    return model.dequantize_outputs([np.concatenate(rows)])[0]


@pytest.mark.usefixtures("toys")
def test_a_range_that_is_half_of_the_largest() -> None:
    whole, half = quantize(), quantize(method="half")
    assert set(half.ranges) == set(whole.ranges) == {"x", "s0", "s1", "s2"}
    for name, found in whole.ranges.items():
        assert (half.ranges[name].lo, half.ranges[name].hi) == (found.lo / 2, found.hi / 2)


@pytest.mark.usefixtures("toys")
def test_a_rounding_that_floors() -> None:
    for bits in (3, 8):
        exact = {"s0": FIRST.astype(np.float64), "s2": SECOND.astype(np.float64)}
        model = quantize({"weight": {"rounding": "floor", "bits": bits}})
        nearest = quantize({"weight": {"bits": bits}})
        for layer, weight in exact.items():
            step = np.abs(weight).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
            off = weight - weight_of(model, layer)
            assert (off >= -1e-9).all() and (off <= 1.1 * step).all() and (off > 0.6 * step).any()
            assert (np.abs(weight - weight_of(nearest, layer)) <= 0.55 * step).all()
        assert real_outputs(model).mean() < real_outputs(nearest).mean()


@pytest.mark.usefixtures("toys")
def test_a_rounding_is_given_what_it_needs_observed_and_only_where_it_is_chosen() -> None:
    """Weights rounded by the sign of the mean of what they multiply make larger means, in every output channel."""
    model, nearest = (
        quantize({"overrides": {"s0": {"weight": {"rounding": name, "bits": 4}}}}) for name in ("outwards", "nearest")
    )
    assert (np.sign(weight_of(model, "s0") - FIRST) * np.sign(X.mean(axis=0)) >= -1e-6).all()
    assert (weight_of(model, "s0") @ X.mean(axis=0) > FIRST @ X.mean(axis=0)).all()
    np.testing.assert_array_equal(weight_of(model, "s2"), weight_of(nearest, "s2"))


@pytest.mark.usefixtures("toys")
def test_a_correction_that_adds_a_constant() -> None:
    model, plain = quantize({"bias_correction": "quarter"}), quantize()
    assert {name: set(values) for name, values in model.corrections.items()} == {"s0": {0.25}, "s2": {0.25}}
    moved = np.maximum(X @ FIRST.T + 0.25, 0) @ SECOND.T + 0.25
    errors = [np.median(np.abs(real_outputs(each) - moved)) for each in (model, plain)]
    assert errors[0] < 0.05 < 0.2 < errors[1]


@pytest.mark.usefixtures("toys")
def test_a_correction_that_reads_the_samples_once_more() -> None:
    assert set(quantize({"bias_correction": "counted"}).corrections["s0"]) == {40.0}
    config = mrt.QuantizationConfig(bias_correction="counted")
    with pytest.raises(DataError, match="counted bias correction reads the calibration data twice"):
        mrt.quantize(network(), iter([X]), config, runner=NumpyRunner())


@pytest.mark.usefixtures("toys")
def test_a_change_of_parameters() -> None:
    """By powers of two nothing is rounded: the ranges between the layers double, and every integer stays."""
    model, plain = quantize({"parameter_changes": ["doubled"]}), quantize()
    factors = {name: model.ranges[name].hi / plain.ranges[name].hi for name in plain.ranges}
    assert factors == {"x": 1.0, "s0": 2.0, "s1": 2.0, "s2": 1.0}
    np.testing.assert_array_equal(weight_of(model, "s0"), 2 * weight_of(plain, "s0"))
    np.testing.assert_array_equal(real_outputs(model), real_outputs(plain))
    twice = quantize({"parameter_changes": ["doubled", "doubled"]})
    assert twice.ranges["s0"].hi == 4 * plain.ranges["s0"].hi
    config = mrt.QuantizationConfig(parameter_changes=("doubled",))
    with pytest.raises(DataError, match="doubled needs calibration data"):
        mrt.quantize(network(), None, config)
    with pytest.raises(QuantizationError, match="lost: w9 is given, which is no parameter"):
        quantize({"parameter_changes": ["lost"]})


@pytest.mark.usefixtures("toys")
def test_a_change_of_outputs_is_refused() -> None:
    with pytest.raises(QuantizationError, match=r"cut gives a network of the outputs \[\('s1'.*\('s2'.* are needed"):
        quantize({"parameter_changes": ["cut"]})


@pytest.mark.usefixtures("toys")
def test_a_run_saves_the_network_that_calibration_changed(tmp_path: Path) -> None:
    """Later stages take it; without the change the network as prepared is taken again."""
    save_network(tmp_path / "net.onnx")
    save_data(tmp_path / "data.npz")
    (tmp_path / "config.yaml").write_text(CONFIG)
    changed = tmp_path / "out" / "stages" / "calibrate" / "params.safetensors"
    with np.load(tmp_path / "data.npz") as data:
        x = data["x"][:20]
    found = []
    for names in ([], ["doubled"], []):
        options = f"quantize.parameter_changes=[{','.join(names)}]"
        run_pipeline(config_of(tmp_path, options), last="calibrate", report=silent())
        assert changed.exists() == bool(names)
        assert (changed.parent / "notes.json").exists() == bool(names)
        run_pipeline(config_of(tmp_path, options), last="quantize", report=silent())
        config = mrt.QuantizationConfig.model_validate({"parameter_changes": names})
        graph = mrt.load_model(tmp_path / "net.onnx")
        saved = mrt.load(tmp_path / "out")
        assert any("doubled " in note for note in saved.notes) == bool(names)
        found.append(saved.digest)
        assert found[-1] == mrt.quantize(graph, [x], config, mrt.CalibrationConfig(batch_size=8)).digest
    assert found[0] == found[2] != found[1]


@pytest.mark.usefixtures("toys")
def test_a_choice_of_channel_groups() -> None:
    model = quantize({"activation": {"granularity": "pairs"}})
    assert [note for note in model.notes if "pairs" in note] == [
        f"{name}: pairs of channels" for name in ("s0", "s1", "s2")
    ]
    groups = [scale.reshape(-1) for name, scale in model.scales.items() if name.startswith("s1") and scale.size == 6]
    assert any(np.array_equal(scale[::2], scale[1::2]) and len(set(scale)) > 1 for scale in groups)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (lambda: mrt.CalibrationConfig(method="half_"), "method is 'half_': 'half', 'historical', 'max', 'mse' or"),
        (
            lambda: mrt.QuantizationConfig(bias_correction="slow"),
            "bias_correction is 'slow': 'none', 'counted', 'fast', 'quarter', 'selected' or 'sequential' is needed",
        ),
        (
            lambda: mrt.QuantizationConfig(weight={"rounding": "up"}),
            "weight.rounding is 'up': 'floor', 'gptq', 'mse', 'nearest' or 'outwards' is needed",
        ),
        (
            lambda: mrt.QuantizationConfig(activation={"granularity": "triples"}),
            "activation.granularity is 'triples': a mapping of keys is needed or 'layer', 'auto' or 'pairs' is needed",
        ),
    ],
)
def test_an_unknown_name_lists_those_that_there_are(options, told) -> None:
    with pytest.raises(ConfigError) as caught:
        options()
    assert told in str(caught.value)


def test_a_name_has_one_meaning() -> None:
    with pytest.raises(ConfigError, match=r"calibrate.method: max is both .*max_range.MaxRange and .*; rename one"):

        @algorithm("max")
        class Other:
            option = "calibrate.method"


def test_what_lacks_its_method_is_refused_where_it_is_registered() -> None:
    class Halfway(Rounding):
        """A rounding that rounds nothing."""

    with pytest.raises(TypeError, match=r"Halfway.*of_layer"):
        algorithm("halfway")(Halfway)
    assert "halfway" not in names_of(Rounding.option)


@pytest.mark.usefixtures("toys")
def test_only_what_is_needed_is_observed() -> None:
    """Calibration that is kept observes what any algorithm needs that may be chosen later, but for costly ones."""
    graph, plain = network(), mrt.QuantizationConfig()
    fast = mrt.QuantizationConfig(bias_correction="fast")
    read, around = {("x", 1), ("s1", 1)}, {("x", 1), ("s0", 1), ("s1", 1), ("s2", 1)}
    assert needs_of(graph, plain).means == () and set(needs_of(graph, plain).ranges) == set(observed_tensors(graph))
    for found, means in ((needs_of(graph, fast), read), (needs_of(graph, plain, also_later=True), around)):
        assert {(channels.tensor, channels.axis) for channels in found.means} == means
    outwards = mrt.QuantizationConfig(weight={"rounding": "outwards"})
    assert [channels.tensor for channels in needs_of(graph, outwards).means] == ["x", "s1"]


@pytest.mark.usefixtures("toys")
def test_a_costly_algorithm_has_saved_calibration_made_anew(tmp_path: Path) -> None:
    def origins(**options: object) -> dict[str, str]:
        config = RunConfig.model_validate({"model": {"path": "net.onnx"}, "quantize": options})
        run = Run(config, network(), Workspace(tmp_path), silent())
        return dict(next(stage for stage in STAGES if stage.name == "calibrate").origins(run))

    plain = origins()
    assert origins(bias_correction="quarter", weight={"rounding": "floor"}) == plain
    named = {"algorithms": "quantize.weight.rounding: outwards"}
    assert origins(weight={"rounding": "outwards"}) == plain | named


def test_stages_are_the_steps() -> None:
    assert tuple(stage.step for stage in STAGES) == STEPS


def test_nearest_is_what_python_rounds() -> None:
    """Ties, both ends and zero points, in Python integers."""
    values = np.array([[-9.0, -2.5, -1.5, -0.5, 0.49, 0.5, 1.5, 2.5, 9.0]])
    for zero, lo, hi in ((0, -7, 7), (3, -8, 7), (-8, -8, 7)):
        weight = UnroundedWeight(values, np.array([[1.0]]), np.array([[zero]]), lo, hi)
        wanted = [min(max(int(abs(v) + 0.5) * (1 if v > 0 else -1) + zero, lo), hi) for v in values[0].tolist()]
        assert nearest_integers(weight)[0].tolist() == wanted


def test_a_package_brings_algorithms_through_the_door(tmp_path: Path) -> None:
    """Installed as one file with an entry point, its names are there for a configuration, with nothing imported."""
    (tmp_path / "toy.py").write_text(Path(__file__).with_name("toy_algorithms.py").read_text())
    (tmp_path / "toy-1.dist-info").mkdir()
    (tmp_path / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (tmp_path / "toy-1.dist-info" / "entry_points.txt").write_text("[mrt.plugins]\nalgorithms = toy\n")
    code = "import mrt; print(mrt.QuantizationConfig(weight={'rounding': 'floor'}).weight.rounding)"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("floor\n", 0), done.stderr
