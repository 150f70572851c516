"""Pooling against ONNX Runtime and loops over windows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnxruntime
import pytest
from applied import Array, draw, holds, infer, random_interval, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from mrt.errors import GraphError
from mrt.symbol import TensorType
from mrt.symbol.operators.pooling import Pooling


@st.composite
def poolings(draw: st.DrawFn, types: tuple[str, ...] = ("max", "avg", "sum")) -> tuple[Pooling, tuple[int, ...]]:
    """An operator with the shape of its data; every window holds an element."""
    rank = draw(st.integers(1, 3))

    def values(low: int, high: int, count: int = rank) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    operator = Pooling(
        kernel=values(1, 4),
        pool_type=draw(st.sampled_from(types)),
        stride=values(1, 4),
        pad=draw(st.sampled_from([(), values(0, 2), values(0, 2, 2 * rank)])),
        pooling_convention=draw(st.sampled_from(["valid", "full"])),
        count_include_pad=draw(st.booleans()),
    )
    shape = (*values(1, 2, 2), *values(1, 7))
    try:
        operator.infer(TensorType(shape))
    except GraphError:
        assume(False)
    return operator, shape


def _naive(operator: Pooling, x: Array) -> Array:
    """Pooling by loops over windows and elements, in float64."""
    rank = x.ndim - 2
    stride, pad = operator.stride or (1,) * rank, operator.pad or (0,) * rank
    before, after = (pad[:rank], pad[rank:]) if len(pad) == 2 * rank else (pad, pad)
    rounding = math.ceil if operator.pooling_convention == "full" else math.floor
    spatial = [
        rounding((n + b + a - k) / s) + 1
        for n, k, s, b, a in zip(x.shape[2:], operator.kernel, stride, before, after, strict=True)
    ]
    result = np.zeros((*x.shape[:2], *spatial))
    for at in np.ndindex(*spatial):
        elements, padded = [], 0
        for tap in np.ndindex(*operator.kernel):
            place = [i * s + t - b for i, s, t, b in zip(at, stride, tap, before, strict=True)]
            if all(0 <= p < n for p, n in zip(place, x.shape[2:], strict=True)):
                elements.append(x[(slice(None), slice(None), *place)])
            padded += all(-b <= p < n + a for p, n, b, a in zip(place, x.shape[2:], before, after, strict=True))
        if operator.pool_type == "max":
            value = np.max(elements, axis=0)
        else:
            count = padded if operator.count_include_pad else len(elements)
            value = np.sum(elements, axis=0) / (count if operator.pool_type == "avg" else 1)
        result[(slice(None), slice(None), *at)] = value
    return result


@given(poolings(), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_every_combination_equals_loops_over_windows(case: tuple[Pooling, tuple[int, ...]], seed: int) -> None:
    operator, shape = case
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(run(operator, x), _naive(operator, x), rtol=1e-6, atol=1e-6)


@given(poolings(("max", "avg")), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_floats_equal_onnx_runtime(case: tuple[Pooling, tuple[int, ...]], seed: int) -> None:
    operator, shape = case
    rank = len(shape) - 2
    pads = operator.pad if len(operator.pad) == 2 * rank else (operator.pad or (0,) * rank) * 2
    # ONNX Runtime refuses pads as wide as the kernel.
    assume(all(p < k for p, k in zip(pads, operator.kernel * 2, strict=True)))
    # ONNX Runtime counts what lies beyond the padding, which neither ONNX nor MXNet does.
    beyond = operator.pooling_convention == "full" and operator.count_include_pad and operator.pool_type == "avg"
    assume(not beyond)
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(run(operator, x), _onnx_pool(operator, x, pads), rtol=1e-5, atol=1e-6)


def _onnx_pool(operator: Pooling, x: Array, pads: tuple[int, ...]) -> Array:
    average = operator.pool_type == "avg"
    node = helper.make_node(
        "AveragePool" if average else "MaxPool",
        ["x"],
        ["y"],
        kernel_shape=operator.kernel,
        strides=operator.stride,
        pads=pads,
        ceil_mode=int(operator.pooling_convention == "full"),
        **({"count_include_pad": int(operator.count_include_pad)} if average else {}),
    )
    graph = helper.make_graph(
        [node],
        "pool",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"x": x})[0]
    return result


@given(poolings(("max", "sum")), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_integers_are_exact_and_bounded(case: tuple[Pooling, tuple[int, ...]], seed: int) -> None:
    operator, shape = case
    rng = np.random.default_rng(seed)
    interval = random_interval(rng, shape, -128, 127)
    x = draw(rng, interval).astype(np.int8)
    result = run(operator, x)
    assert result.dtype == (np.int8 if operator.pool_type == "max" else np.int32)
    np.testing.assert_array_equal(result, _naive(operator, x))
    assert holds(operator.bounds(interval), result)


@pytest.mark.parametrize("pool_type", ["max", "avg", "sum"])
def test_global_pooling_ignores_kernel_stride_and_pad(pool_type: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    operator = Pooling(kernel=(7, 7), pool_type=pool_type, stride=(3, 3), pad=(2, 2), global_pool=True)
    expected = {"max": np.max, "avg": np.mean, "sum": np.sum}[pool_type](x, axis=(2, 3), keepdims=True)
    np.testing.assert_allclose(run(operator, x), expected)
    assert infer(Pooling(pool_type=pool_type, global_pool=True), TensorType((1, 2, 3))).shape == (1, 2, 1)


def test_sums_of_partial_windows_are_bounded_by_what_they_hold() -> None:
    operator = Pooling(kernel=(3,), pool_type="sum", pad=(1,))
    interval = random_interval(np.random.default_rng(0), (1, 1, 4), 5, 5)
    # Two elements at the border, three inside.
    assert str(operator.bounds(interval)) == "[10, 15]"
    assert str(operator.intermediates(interval)[0]) == "[0, 15]"


def test_the_border_of_a_maximum_never_shows() -> None:
    x = np.full((1, 1, 2, 2), -128, np.int8)
    assert (run(Pooling(kernel=(3, 3), pad=(1, 1)), x) == -128).all()
    low = np.full((1, 1, 2, 2), -1e30, np.float32)
    assert (run(Pooling(kernel=(3, 3), pad=(2, 2), stride=(2, 2)), low) == np.float32(-1e30)).all()


@pytest.mark.parametrize("begin", [0, 1, 2])
@pytest.mark.parametrize("end", [0, 1, 2])
def test_asymmetric_padding_equals_padding_first(begin: int, end: int) -> None:
    x = np.random.default_rng(begin + 3 * end).standard_normal((1, 2, 5))
    padded = np.pad(x, ((0, 0), (0, 0), (begin, end)))
    operator, after = Pooling(kernel=(3,), pool_type="avg", pad=(begin, end)), Pooling(kernel=(3,), pool_type="avg")
    np.testing.assert_allclose(run(operator, x), run(after, padded))


@pytest.mark.parametrize(
    ("operator", "type", "message"),
    [
        (Pooling(), TensorType((1, 2, 8)), "kernel is missing"),
        (Pooling(kernel=(3,), pool_type="lp"), TensorType((1, 2, 8)), "max, avg or sum is needed"),
        (Pooling(kernel=(3,), pooling_convention="same"), TensorType((1, 2, 8)), "valid or full is needed"),
        (Pooling(kernel=(3,), pool_type="avg"), TensorType((1, 2, 8), "int8"), "no integer form"),
        (Pooling(kernel=(9,)), TensorType((1, 2, 8)), "exceeds axis 2"),
        (Pooling(kernel=(2,), pad=(2,)), TensorType((1, 2, 8)), "holds padding only"),
        (Pooling(kernel=(1,), stride=(3,), pooling_convention="full"), TensorType((1, 2, 8)), "holds padding only"),
        (Pooling(kernel=(3, 3)), TensorType((1, 2, 8)), "kernel is"),
        (Pooling(kernel=(3,)), TensorType((2, 8)), "rank 3"),
    ],
)
def test_what_does_not_fit_is_named(operator: Pooling, type: TensorType, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        infer(operator, type)


def test_bounds_hold_for_every_small_integer_image() -> None:
    operator = Pooling(kernel=(2,), pool_type="sum", pooling_convention="full", stride=(2,))
    interval = random_interval(np.random.default_rng(4), (1, 1, 3), -2, 2)
    full = interval.expanded()
    ranges = [range(int(a), int(b) + 1) for a, b in zip(full.lo.ravel(), full.hi.ravel(), strict=True)]
    for values in itertools.product(*ranges):
        assert holds(operator.bounds(interval), operator.evaluate(np.array(values).reshape(1, 1, 3)))
