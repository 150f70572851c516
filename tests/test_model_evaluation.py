"""The compiled model is compared with the float network, and its integers with their meaning, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mrt
from mrt import model_evaluation, workers
from mrt.datasets import Dataset
from mrt.errors import VerificationError
from mrt.evaluation import batched
from mrt.model_evaluation import Evaluated, Networks, evaluate
from mrt.preparation import prepare
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, NumpyRunner
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Softmax
from tests.pipeline.runs import silent
from tests.quantization.networks import chain

SAMPLES, CHECKED = 12, 6
X = np.random.default_rng(0).standard_normal((SAMPLES, 8)).astype(np.float32)
LAYER = (FullyConnected(4, no_bias=True), [np.random.default_rng(1).standard_normal((4, 8))])


def _networks(graph: Graph) -> Networks:
    model = mrt.quantize(graph, X, QuantizationConfig(preset="fast"), runner=NumpyRunner())
    return Networks(graph, prepare(graph).graph, model, model.compile())


@pytest.fixture(scope="module")
def plain() -> Networks:
    return _networks(chain((1, 8), LAYER))


def _evaluated(networks: Networks) -> Evaluated:
    inputs = {symbol.name: symbol.type for symbol in networks.original.inputs}
    data = Dataset("data.test", SAMPLES, None, inputs, lambda start, stop: {"x": X[start:stop]})
    return evaluate(networks, data, 4, CHECKED, silent())


class _Wrong:
    """A module whose integers are wrong by one for samples from one on."""

    def __init__(self, module: Any, first: int) -> None:
        self._module, self._first, self.inputs, self.outputs = module, first, module.inputs, module.outputs

    def run_integer(self, feeds: Mapping[str, Array]) -> Array:
        found: Array = self._module.run_integer(feeds).copy()
        wrong = [self.inputs[0].quantize(sample[None]) for sample in X[self._first :]]
        found[:, 2:] += any(np.array_equal(feeds["x"], each) for each in wrong)
        return found


@pytest.mark.parametrize("first", [0, 3, CHECKED - 1])
def test_integers_that_differ_are_an_error_that_names_the_first_sample(plain: Networks, first: int) -> None:
    wrong: Any = _Wrong(plain.module, first)
    with pytest.raises(VerificationError, match=rf"sample {first} differ from graph.evaluate in 2 of 4 elements"):
        _evaluated(replace(plain, module=wrong))


def test_errors_do_not_depend_on_how_many_cores_there_are(plain: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(workers, "cores", lambda cores=cores: cores)
        found.append(_evaluated(plain))
    assert found[0] == found[1]
    assert found[0].errors.samples == CHECKED and found[0].compared.samples == SAMPLES


@pytest.mark.parametrize("has_tail", [False, True])
def test_the_prepared_network_is_run_only_where_a_float_tail_follows_it(
    has_tail: bool, plain: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = _networks(chain((1, 8), LAYER, (Softmax(), []))) if has_tail else plain
    run: list[Graph] = []

    def recorded(graph: Graph, *given: Any) -> Any:
        run.append(graph)
        return batched(graph, *given)

    monkeypatch.setattr(model_evaluation, "batched", recorded)
    compared = _evaluated(networks).compared
    assert run == [networks.original, networks.prepared][: 1 + has_tail]
    model = networks.model
    (logits,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(X[:1])))
    exact = X @ LAYER[1][0].T.astype(np.float32)
    assert np.abs(logits - exact[0]).max() < 0.2
    assert compared.noise.signal == pytest.approx(float(np.square(exact.astype(np.float64)).sum()), rel=1e-5)
