"""The check of Relay texts at every opt_level: what it prepares, and what TVM makes of it where one with Relay is."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from loaded import load_benchmark

import mrt
from mrt.model import QuantizedModel, assemble
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from tests.quantization.networks import chain, quantize_and_run

relay_levels = load_benchmark("relay_levels")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of two convolutions with a rectifier between."""
    random = np.random.default_rng(0)
    graph = chain(
        (1, 2, 6, 6),
        (Convolution((3, 3), 4, no_bias=True), [random.standard_normal((4, 2, 3, 3))]),
        (Relu(), []),
        (Convolution((1, 1), 3, no_bias=True), [random.standard_normal((3, 4, 1, 1))]),
    )
    samples = [{"x": random.standard_normal((1, 2, 6, 6)).astype(np.float32)} for _ in range(4)]
    folder = tmp_path_factory.mktemp("saved")
    assemble(quantize_and_run(graph, samples).integer, None, {}).save(folder)
    return folder


def test_what_is_prepared_are_integers_of_the_range_and_of_the_graph(saved: Path, tmp_path: Path) -> None:
    relay_levels.prepare(saved, tmp_path)
    model: QuantizedModel = mrt.load(saved)
    (entry,) = model.inputs
    graph = mrt.load_model(tmp_path / "model.relay")
    with np.load(tmp_path / "integers.npz") as arrays:
        integers = dict(arrays)
    fed = [integers[f"in_{sample}_0"] for sample in range(len(integers) // 2)]
    assert len(fed) == 2 + 2 * relay_levels.RANDOM
    assert (fed[0] == entry.lo).all() and (fed[1] == entry.hi).all()
    for sample, values in enumerate(fed):
        assert values.min() >= entry.lo and values.max() <= entry.hi
        (found,) = graph.evaluate({graph.inputs[0].name: values})
        np.testing.assert_array_equal(found, integers[f"out_{sample}_0"])


@pytest.mark.skipif(
    find_spec("tvm") is None or find_spec("tvm.relay") is None,
    reason="the installed TVM has no Relay; 0.8 to 0.19 have",
)
def test_every_level_gives_the_integers(saved: Path, tmp_path: Path) -> None:
    relay_levels.prepare(saved, tmp_path)
    assert set(relay_levels.check(tmp_path).values()) == {0}
