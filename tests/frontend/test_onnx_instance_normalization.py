"""InstanceNormalization and LpNormalization of ONNX, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import OPSETS, assert_agrees, operators_of, single

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 2)])
@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_instance_normalization(opset: int, shape: tuple[int, ...], epsilon: float | None) -> None:
    attributes = {} if epsilon is None else {"epsilon": epsilon}
    constants = {name: RNG.random(3).astype(np.float32) + 0.5 for name in ("gamma", "beta")}
    graph = assert_agrees(single("InstanceNormalization", shape, constants, opset, **attributes))
    assert operators_of(graph) == ["InstanceNorm"]


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4, 5)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("p", [None, 2])
def test_lp_normalization(shape: tuple[int, ...], axis: int | None, p: int | None) -> None:
    if axis == 1 and len(shape) == 1:
        pytest.skip("a vector has no axis 1")
    attributes = {key: value for key, value in (("axis", axis), ("p", p)) if value is not None}
    graph = assert_agrees(single("LpNormalization", shape, **attributes))
    assert operators_of(graph).count("L2Normalization") == 1


def test_zeros_stay_zeros() -> None:
    model = single("LpNormalization", (2, 3), axis=1)
    assert_agrees(model, {"x": np.array([[0, 0, 0], [0, 3, 4]], np.float32)})


def test_other_norms_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="attribute p is 1; 2 is needed"):
        from_onnx(single("LpNormalization", (2, 3), p=1))
