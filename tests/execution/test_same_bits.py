"""A network is the same, to the last bit, whoever calibrates, rounds and corrects it, in chunks of any size."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.calibration import CalibrationConfig
from mrt.execution import Executor
from mrt.model import QuantizedModel
from mrt.quantization.algorithms import sensitive_tensors
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.simulation import parts
from mrt.quantization.simulation.simulation import Simulation
from tests.quantization.corrected_networks import convolution
from tests.quantization.networks import chain

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

ALL_THAT_IS_GATHERED = QuantizationConfig.model_validate(
    {
        "bias_correction": "sequential",
        "weight": {"bits": 4, "rounding": "gptq"},
        "more_bits": "auto",
        "parameter_changes": ["equalize"],
    }
)
SAMPLES = 25
"""So many that each of three workers has something to add up."""


NETWORK = chain((1, 3, 6, 6), convolution(3, 8, 3), convolution(8, 8, 3, 8), convolution(8, 5))


def data() -> list[np.ndarray]:
    x = np.random.default_rng(5).normal(size=(SAMPLES, 3, 6, 6)).astype(np.float32)
    return [x[:9], x[9:]]


def made(chunk: int, executor: Any = None, method: str = "mse") -> QuantizedModel:
    calibration = CalibrationConfig(batch_size=chunk, method=method)
    return mrt.quantize(NETWORK, data(), ALL_THAT_IS_GATHERED, calibration, executor=executor, progress=None)


by_threads = cache(made)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "chunk"), [(1, 7), (3, 1)], ids=str)
def test_workers_make_the_network_that_threads_make(count: int, chunk: int) -> None:
    """Workers are threads of this process, which start at once; processes are those of the test below."""
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": None, "set_as_default": False}
    with distributed.Client(n_workers=count, **options) as client:
        there = made(chunk, client)
    here = by_threads(chunk)
    assert there.digest == here.digest == by_threads(7).digest
    assert dict(there.ranges) == dict(here.ranges) and there.notes == here.notes
    for name, corrected in here.corrections.items():
        np.testing.assert_array_equal(there.corrections[name], corrected)


@pytest.mark.slow
def test_tensors_of_large_networks_are_tried_alike(workers: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the network were large: in several parts, behind which errors are compared."""
    asked = []
    nearby = Simulation.errors_alone
    monkeypatch.setattr(Simulation, "errors_alone", lambda *given: asked.append(given) or nearby(*given))
    monkeypatch.setattr(sensitive_tensors, "TRIED_OPERATIONS", 1.0)
    monkeypatch.setattr(parts, "LEAST_OPERATIONS", 1.0)
    here, there = made(7), made(7, workers)
    assert len(asked) == 2
    assert there.digest == here.digest and there.notes == here.notes
