"""Relax normalisations of each sample by itself give what TVM computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import build, check, constant, operators, random
from tvm.relax import op

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.relax import from_relax


@pytest.mark.parametrize(
    ("shape", "channel_axis", "axes", "transposes"),
    [((2, 3, 4, 5), 1, [2, 3], 0), ((2, 4, 5, 3), 3, [1, 2], 2), ((1, 3, 7), 1, [-1], 0)],
)
def test_instance_norm(shape: tuple[int, ...], channel_axis: int, axes: list[int], transposes: int) -> None:
    gamma, beta = constant(random(3)), constant(random(3, seed=1))
    graph = check(lambda x: op.nn.instance_norm(x, gamma, beta, channel_axis, axes, 1e-3), x=shape)
    assert operators(graph).count("transpose") == transposes


def test_scale_and_shift_that_are_not_used() -> None:
    """TVM's own lowering multiplies and adds whatever the attributes say, so NumPy is the oracle."""
    data, gamma, beta = random(2, 3, 5), random(3), random(3, seed=1)
    mod = build(
        lambda x: op.nn.instance_norm(x, constant(gamma), constant(beta), 1, [2], center=False, scale=False),
        x=data.shape,
    )
    expected = (data - data.mean(2, keepdims=True)) / np.sqrt(data.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(from_relax(mod).evaluate({"x": data})[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("shape", "channel_axis", "axes"), [((2, 6, 4, 5), 1, [2, 3]), ((2, 4, 5, 6), 3, [1, 2]), ((3, 6, 4), 1, [2])]
)
def test_group_norm(shape: tuple[int, ...], channel_axis: int, axes: list[int], groups: int) -> None:
    gamma, beta = constant(random(6)), constant(random(6, seed=1))
    check(lambda x: op.nn.group_norm(x, gamma, beta, groups, channel_axis, axes, 1e-3), x=shape)


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 3, 8), [-1]), ((2, 3, 4), [1, 2]), ((2, 3, 4, 5), [3]), ((2, 7), [-1])]
)
def test_rms_norm(shape: tuple[int, ...], axes: list[int]) -> None:
    weight = constant(random(*(shape[axis] for axis in axes)))
    check(lambda x: op.nn.rms_norm(x, weight, axes, 1e-2), x=shape)


@pytest.mark.parametrize("axis", [1, -1])
def test_log_softmax(axis: int) -> None:
    """Far below the maximum too, where a probability is too small for a float."""
    data = 100 * random(2, 5, 4)
    check(lambda x: op.nn.log_softmax(x, axis), {"x": data}, x=data.shape)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (lambda x, v: op.nn.instance_norm(x, v, v, 1, [2]), r"axes is \(2,\)"),
        (lambda x, v: op.nn.group_norm(x, v, v, 2, 1, [2]), r"axes is \(2,\)"),
        (lambda x, v: op.nn.rms_norm(x, v, [1]), r"axes is \(1,\)"),
    ],
)
def test_axes_that_are_not_covered_are_refused(body: Any, found: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=found):
        from_relax(build(lambda x: body(x, constant(np.ones(4))), x=(1, 4, 4, 4)))
