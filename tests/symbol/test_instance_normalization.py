"""InstanceNorm and L2Normalization against their formulas, sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
from applied import infer, run

from mrt.errors import GraphError
from mrt.symbol import TensorType
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 3, 2, 2, 2)])
def test_instances_are_normalised_by_channel(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, gamma, beta = (rng.standard_normal(s).astype(np.float32) for s in (shape, (3,), (3,)))
    found = run(InstanceNorm(eps=0.1), x, gamma, beta)
    for sample, channel in np.ndindex(shape[0], 3):
        part = x[sample, channel].astype(np.float64)
        expected = (part - part.mean()) / np.sqrt(part.var() + 0.1) * gamma[channel] + beta[channel]
        np.testing.assert_allclose(found[sample, channel], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["instance", "channel", "spatial"])
def test_lengths_become_one(mode: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    found = run(L2Normalization(mode=mode), x).astype(np.float64)
    axes = {"instance": (1, 2, 3), "channel": (1,), "spatial": (2, 3)}[mode]
    lengths = np.sqrt(np.square(found).sum(axis=axes))
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)
    np.testing.assert_allclose(found / np.abs(found).max(), x / np.abs(x).max(), atol=1)
    np.testing.assert_array_equal(np.sign(found), np.sign(x))


def test_zeros_stay_zeros() -> None:
    assert not run(L2Normalization(), np.zeros((2, 3), np.float32)).any()
    assert not run(
        InstanceNorm(), np.zeros((2, 1, 3), np.float32), np.ones(1, np.float32), np.zeros(1, np.float32)
    ).any()


def test_misfits_are_refused() -> None:
    vector = TensorType((3,))
    with pytest.raises(GraphError, match="rank 3 or more"):
        infer(InstanceNorm(), TensorType((2, 3)), vector, vector)
    with pytest.raises(GraphError, match=r"gamma is .*; shape \(4,\) is needed"):
        infer(InstanceNorm(), TensorType((2, 4, 3)), vector, vector)
    with pytest.raises(GraphError, match="mode is rows; one of"):
        infer(L2Normalization(mode="rows"), TensorType((2, 3)))
    with pytest.raises(GraphError, match="rank 3 or more is needed for mode spatial"):
        infer(L2Normalization(mode="spatial"), TensorType((2, 3)))
