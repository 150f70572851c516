"""What a search is told: the same by threads and by workers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.calibration import CalibrationConfig, calibrate
from mrt.config import load_config
from mrt.datasets import Dataset
from mrt.execution import THREADS, Executor
from mrt.execution.options import ClusterConfig
from mrt.frontend import load_model
from mrt.preparation import prepare
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.needs import needs_of
from mrt.quantization.options import QuantizationConfig
from mrt.search.explore import Explorer
from mrt.search.judging import Judges
from mrt.search.sensitivity import measure_sensitivity
from mrt.search.space import Space
from mrt.symbol import Graph, NumpyRunner
from tests.search.networks import save_network, save_run

IMAGES = np.random.default_rng(5).normal(size=(20, 2, 4, 4)).astype(np.float32)
SIZE = 8
"""Of the batches that judge; the last one is shorter."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    save_network(path)
    return prepare(load_model(path)).graph


def test_sensitivities_are_those_that_threads_measure(graph: Graph, workers: Executor) -> None:
    config, options = QuantizationConfig(), CalibrationConfig()
    observed = calibrate(graph, [IMAGES], needs_of(graph, config), options, NumpyRunner())
    space = Space.of(graph, observed.ranges, config)
    here, there = (
        measure_sensitivity(
            graph, observed, config, space, Samples([{"x": IMAGES}], options, NumpyRunner(), executor=executor)
        )
        for executor in (THREADS, workers)
    )
    assert there == here and len(here) == len(space.items)


def test_networks_are_judged_on_all_samples_in_their_order(graph: Graph, executor: Executor) -> None:
    labels = np.arange(len(IMAGES))
    inputs = {symbol.name: symbol.type for symbol in graph.inputs}
    data = Dataset("test", len(IMAGES), labels, inputs, lambda start, stop: {"x": IMAGES[start:stop]})
    judges = Judges(data, SIZE, executor)
    assert [each.tolist() for each in judges.labels if each is not None] == [
        list(range(8)), list(range(8, 16)), list(range(16, 20))
    ]  # fmt: skip
    wanted = np.concatenate([graph.evaluate({"x": image[None]})[0] for image in IMAGES])
    found = [outputs[0] for outputs in judges.float(graph)]
    assert [len(each) for each in found] == [8, 8, 4]
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-4, atol=1e-5)
    model = mrt.quantize(graph, [IMAGES], runner=NumpyRunner(), progress=None)
    with closing(model.compile(cache=False)) as module:
        real = np.concatenate([outputs[0] for outputs in judges.integer(model, module)])
    integers = [model.graph.evaluate(model.quantize_inputs(image[None])) for image in IMAGES]
    np.testing.assert_array_equal(real, np.concatenate([model.dequantize_outputs(each)[0] for each in integers]))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_search_by_workers_is_the_one_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(Explorer, "_choose_algorithms", lambda self, base: base)
    monkeypatch.setattr(Explorer, "_improve", lambda self, recipe: None)  # a few trials show it
    config = load_config(save_run(tmp_path))
    spread = config.model_copy(update={"cluster": ClusterConfig(processes=2)})
    here, there = (
        mrt.tune(each, metric="sqnr", least=11.0, objective="bits", seconds=1e6, output=tmp_path / name)
        for name, each in (("here", config), ("there", spread))
    )
    assert there.finished and len(here.trials) > 4
    for one, other in zip(here.trials, there.trials, strict=True):
        assert one.why == other.why and one.config == other.config
        assert replace(one.result, milliseconds=0.0) == replace(other.result, milliseconds=0.0)
    assert here.choices == there.choices
