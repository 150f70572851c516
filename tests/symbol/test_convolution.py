"""Convolution against ONNX Runtime, Python integers, and inputs that reach its bounds."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from applied import Array, holds, infer, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from mrt.errors import GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.convolution import Convolution


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Convolution, tuple[int, ...], tuple[int, ...]]:
    """An operator with the shapes of its data and weight."""
    rank = draw(st.integers(1, 3))

    def values(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    groups, inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    operator = Convolution(
        kernel=values(1, 3),
        num_filter=groups * outputs,
        stride=values(1, 3),
        dilate=values(1, 2),
        pad=values(0, 2),
        num_group=groups,
        no_bias=draw(st.booleans()),
    )
    data = (draw(st.integers(1, 2)), groups * inputs, *values(1, 7))
    spans = [d * (k - 1) + 1 for k, d in zip(operator.kernel, operator.dilate, strict=True)]
    assume(all(n + 2 * p >= s for n, p, s in zip(data[2:], operator.pad, spans, strict=True)))
    return operator, data, (operator.num_filter, inputs, *operator.kernel)


@given(convolutions(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_floats_equal_onnx_runtime(case: tuple[Convolution, tuple[int, ...], tuple[int, ...]], seed: int) -> None:
    operator, data_shape, weight_shape = case
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in (data_shape, weight_shape)]
    if not operator.no_bias:
        inputs.append(rng.standard_normal(operator.num_filter).astype(np.float32))
    np.testing.assert_allclose(run(operator, *inputs), _onnx_conv(operator, inputs), rtol=1e-5, atol=1e-5)


def _onnx_conv(operator: Convolution, inputs: list[Array]) -> Array:
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(
        "Conv",
        names,
        ["y"],
        kernel_shape=operator.kernel,
        strides=operator.stride,
        dilations=operator.dilate,
        pads=operator.pad * 2,
        group=operator.num_group,
    )
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        for name, value in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "conv", declared, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, dict(zip(names, inputs, strict=True)))[0]
    return result


def _naive(operator: Convolution, x: Array, weight: Array) -> Array:
    """Convolution by loops over Python ints."""
    stride, dilate, pad = operator.window(x.ndim - 2)
    padded = np.pad(x.astype(object), [(0, 0), (0, 0), *((p, p) for p in pad)])
    spatial = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(padded.shape[2:], operator.kernel, stride, dilate, strict=True)
    ]
    result = np.zeros((x.shape[0], operator.num_filter, *spatial), object)
    per_group = operator.num_filter // operator.num_group
    for place in np.ndindex(*result.shape):
        sample, output, *at = place
        first = output // per_group * weight.shape[1]
        for tap in np.ndindex(*weight.shape[1:]):
            source = [a * s + t * d for a, s, t, d in zip(at, stride, tap[1:], dilate, strict=True)]
            result[place] += int(padded[(sample, first + tap[0], *source)]) * int(weight[(output, *tap)])
    return result


@given(convolutions(), st.sampled_from([7, 2**7, 2**15, 2**27, 2**31 - 1]), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_integers_are_exact_at_every_magnitude(
    case: tuple[Convolution, tuple[int, ...], tuple[int, ...]], largest: int, seed: int
) -> None:
    operator, data_shape, weight_shape = case
    operator = Convolution(**{**operator.attributes(), "no_bias": True})
    rng = np.random.default_rng(seed)
    x, weight = (rng.integers(-largest, largest, shape, endpoint=True) for shape in (data_shape, weight_shape))
    result = operator.evaluate(x.astype(np.int32), weight.astype(np.int32))
    np.testing.assert_array_equal(result.astype(object), _naive(operator, x, weight))


def test_a_large_image_is_convolved_in_parts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.integers(-9, 9, (3, 2, 9, 8)), rng.integers(-9, 9, (4, 2, 3, 2))
    operator = Convolution(kernel=(3, 2), num_filter=4, no_bias=True)
    for block in (1, 100, 600, 2**22):
        monkeypatch.setattr("mrt.symbol.operators._products._BLOCK", block)
        np.testing.assert_array_equal(operator.evaluate(x, weight), _naive(operator, x, weight))


def test_an_overflow_of_int32_is_an_error_and_no_wrap() -> None:
    x, weight = np.full((1, 3, 1), 2**15, np.int32), np.full((1, 3, 1), 2**15, np.int32)
    with pytest.raises(GraphError, match="overflows int32"):
        run(Convolution(kernel=(1,), num_filter=1, no_bias=True), x, weight)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_bounds_are_attained_in_every_output_channel(groups: int) -> None:
    rng = np.random.default_rng(groups)
    operator = Convolution(kernel=(3, 3), num_filter=8, num_group=groups)
    weight, bias = rng.integers(-128, 127, (8, 4 // groups, 3, 3)), rng.integers(-999, 999, 8)
    lo, hi = rng.integers(-128, 0, (1, 4, 1, 1)), rng.integers(0, 127, (1, 4, 1, 1))
    x = Interval(lo, hi, (1, 4, 3, 3))
    bounds = operator.bounds(x, Interval.constant(weight), Interval.constant(bias))
    assert bounds.lo.shape == bounds.hi.shape == (1, 8, 1, 1)
    per_group = 8 // groups
    for channel in range(8):
        signs = np.zeros((1, 4, 3, 3), int)
        first = channel // per_group * weight.shape[1]
        signs[0, first : first + weight.shape[1]] = weight[channel]
        highest = operator.evaluate(np.where(signs > 0, hi, lo), weight, bias)[0, channel, 0, 0]
        lowest = operator.evaluate(np.where(signs > 0, lo, hi), weight, bias)[0, channel, 0, 0]
        assert (lowest, highest) == (bounds.lo[0, channel, 0, 0], bounds.hi[0, channel, 0, 0])


def test_bounds_with_padding_hold_zero() -> None:
    weight = Interval.constant(np.array([[[1, 1, 1]]]))
    x = Interval.of(5, 9, (1, 1, 4))
    assert str(Convolution(kernel=(3,), num_filter=1, no_bias=True).bounds(x, weight)) == "[15, 27]"
    padded = Convolution(kernel=(3,), num_filter=1, pad=(1,), no_bias=True)
    bounds = padded.bounds(x, weight)
    assert str(bounds) == "[0, 27]"
    assert holds(bounds, padded.evaluate(np.full((1, 1, 4), 9), np.array([[[1, 1, 1]]])))


def test_bounds_are_exact_beyond_64_bits() -> None:
    big = 2**31 - 1
    x, weight = Interval.of(-big, big, (1, 9, 1)), Interval.of(-big, big, (1, 9, 1))
    bounds = Convolution(kernel=(1,), num_filter=1, no_bias=True).bounds(x, weight)
    assert (bounds.min, bounds.max) == (-9 * big * big, 9 * big * big)


def test_bounds_of_a_weight_that_is_not_constant_hold_exhaustively() -> None:
    operator = Convolution(kernel=(1,), num_filter=1, no_bias=True)
    x, weight = Interval.of(-1, 2, (1, 2, 1)), Interval.of(-2, 1, (1, 2, 1))
    bounds = operator.bounds(x, weight)
    reached = {
        int(operator.evaluate(np.array(a).reshape(1, 2, 1), np.array(b).reshape(1, 2, 1))[0, 0, 0])
        for a in itertools.product(range(-1, 3), repeat=2)
        for b in itertools.product(range(-2, 2), repeat=2)
    }
    assert (bounds.min, bounds.max) == (min(reached), max(reached))


def test_intermediates_hold_partial_sums_in_every_order() -> None:
    weight, bias = np.array([[[5], [-7], [3]]]), np.array([-4])
    operator = Convolution(kernel=(1,), num_filter=1)
    x = Interval.of(2, 3, (1, 3, 1))
    (partial,) = operator.intermediates(x, Interval.constant(weight), Interval.constant(bias))
    reached = set()
    for values in itertools.product((2, 3), repeat=3):
        terms = [*(w * v for w, v in zip((5, -7, 3), values, strict=True)), -4]
        for order in itertools.permutations(terms):
            reached |= set(itertools.accumulate(order))
    assert (partial.min, partial.max) == (min(reached), max(reached))


def test_infinite_floats_leave_no_nan() -> None:
    weight = Interval.constant(np.array([[[0.0], [1.0]], [[-1.0], [1.0]]]))
    x = Interval.of(0.0, np.inf, (1, 2, 1))
    bounds = Convolution(kernel=(1,), num_filter=2, no_bias=True).bounds(x, weight)
    np.testing.assert_array_equal(bounds.lo.ravel(), [0, -np.inf])
    np.testing.assert_array_equal(bounds.hi.ravel(), [np.inf, np.inf])


@pytest.mark.parametrize(
    ("operator", "types", "message"),
    [
        (Convolution((3, 3), 4), [(1, 3, 8, 8), (4, 3, 3, 3)], "bias is missing"),
        (Convolution((3, 3), 4, no_bias=True), [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], "bias is given"),
        (Convolution((3, 3), 4, no_bias=True), [(1, 3, 8, 8), (4, 2, 3, 3)], r"\(4, 3, 3, 3\) is needed"),
        (Convolution((3, 3), 4, no_bias=True), [(1, 3, 8), (4, 3, 3, 3)], "rank 4 is needed"),
        (Convolution((3, 3), 4, no_bias=True, num_group=2), [(1, 3, 8, 8), (4, 1, 3, 3)], "does not divide 3 channels"),
        (Convolution((3, 3), 4, no_bias=True, stride=(1,)), [(1, 3, 8, 8), (4, 3, 3, 3)], "stride is"),
        (Convolution((3, 3), 4, no_bias=True, layout="NHWC"), [(1, 3, 8, 8), (4, 3, 3, 3)], "NCHW is needed"),
        (Convolution((9, 9), 4, no_bias=True), [(1, 3, 8, 8), (4, 3, 9, 9)], "exceeds"),
    ],
)
def test_inputs_that_do_not_fit_are_named(operator: Convolution, types: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^y \(Convolution\): .*{message}"):
        infer(operator, *map(TensorType, types))


def test_floats_and_integers_do_not_mix() -> None:
    with pytest.raises(GraphError, match="cast one of them"):
        infer(Convolution((1,), 1, no_bias=True), TensorType((1, 1, 1)), TensorType((1, 1, 1), "int8"))
