"""Metrics against NumPy in float64 by hand; the same however the samples are batched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.errors import DataError, GraphError
from mrt.evaluation import (
    PIECE,
    Comparison,
    Measured,
    Noise,
    Share,
    agreement,
    compare,
    counterparts,
    predict,
    quantization_noise,
    run_batched,
    sample_walk,
    tensor_error,
    top1,
)
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.scalar import PlusScalar
from mrt.symbol.operators.transform import Reshape
from mrt.symbol.rebatch import Rebatch


def test_the_class_is_the_first_of_the_highest_scores() -> None:
    assert predict(np.array([[1, 3, 3], [2.0, 1, 0]])).tolist() == [1, 0]
    assert predict(np.array([[[0], [1]], [[5], [4]]])).tolist() == [1, 0]


def test_top1_counts_labels_met() -> None:
    scores = np.eye(4)
    assert top1(scores, np.array([0, 1, 3, 3])) == Share(3, 4)
    assert top1(scores, np.array([0, 1, 3, 3])).value == 0.75
    assert Share().value is None


def test_agreement_counts_equal_classes() -> None:
    assert agreement(np.eye(3), np.eye(3)[[0, 2, 2]]) == Share(2, 3)


def test_labels_beyond_the_classes_and_nan_are_refused() -> None:
    with pytest.raises(DataError, match="labels go up to 4, the network has 4 classes"):
        top1(np.eye(4), np.array([0, 1, 2, 4]))
    with pytest.raises(DataError, match="sample 1 of a batch hold NaN"):
        predict(np.array([[0, 1], [np.nan, 1]]))


def test_sqnr_is_ten_log_of_the_energies() -> None:
    f, q = np.array([3.0, -4.0]), np.array([3.0, -4.5])
    assert quantization_noise(f, q).sqnr_db == pytest.approx(10 * math.log10(25 / 0.25))
    assert quantization_noise(f, f).sqnr_db is None
    assert quantization_noise(0 * f, q).sqnr_db is None
    assert Noise().sqnr_db is None


def test_sqnr_of_float32_is_computed_in_float64() -> None:
    f = np.full(10, 3e38, np.float32)
    assert quantization_noise(f, f * np.float32(0.5)).sqnr_db == pytest.approx(20 * math.log10(2))


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), labelled=st.booleans(), seed=st.integers(0, 99))
def test_a_comparison_does_not_depend_on_the_batches(sizes: list[int], labelled: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    f, labels = rng.normal(size=(count, 4)), rng.integers(0, 4, count)
    q = f + rng.normal(0, 0.3, f.shape)

    def batches(lengths: list[int]) -> Iterator[Mapping[str, np.ndarray]]:
        stops = np.cumsum(lengths)
        return ({"rows": np.arange(stop - length, stop)} for length, stop in zip(lengths, stops, strict=True))

    def run(lengths: list[int]) -> Comparison:
        return compare(
            batches(lengths),
            labels if labelled else None,
            lambda feeds: Measured([f[feeds["rows"]]], [f[feeds["rows"]]]),
            lambda feeds: Measured([q[feeds["rows"]]], [q[feeds["rows"]]]),
        )

    parts, whole = run(sizes), run([count])
    assert (parts.samples, parts.float_top1, parts.integer_top1, parts.agreement) == (
        whole.samples,
        whole.float_top1,
        whole.integer_top1,
        whole.agreement,
    )
    assert parts.noise.sqnr_db == pytest.approx(whole.noise.sqnr_db)
    assert parts.agreement.value == np.mean(f.argmax(1) == q.argmax(1))
    assert parts.integer_top1.value == (np.mean(q.argmax(1) == labels) if labelled else None)


def test_scores_and_logits_are_kept_apart_and_progress_is_told() -> None:
    scores, logits = np.eye(2), np.array([[4.0, 0], [0, 4]])
    told: list[int] = []
    found = compare(
        [{"x": np.zeros((2, 1))}] * 3,
        None,
        lambda feeds: Measured([scores], [logits, logits]),
        lambda feeds: Measured([scores[::-1]], [logits + 1, logits]),
        told.append,
    )
    assert (found.samples, found.agreement.value, told) == (6, 0.0, [2, 4, 6])
    assert found.noise.sqnr_db == pytest.approx(10 * math.log10(64 / 4))


def relu_graph() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    return builder.graph([builder.apply(Relu(), [x], "y"), x])


@pytest.mark.parametrize("count", [1, 4, 7])
def test_a_graph_is_run_over_any_number_of_samples(count: int) -> None:
    x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    y, same = run_batched(relu_graph(), NumpyRunner(), 4)({"x": x})
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(same, x)


def test_an_output_without_a_batch_is_refused() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    constant = builder.parameter("table", np.zeros((5, 3), np.float32))
    graph = builder.graph([builder.apply(Relu(), [x], "y"), builder.apply(Relu(), [constant], "z")])
    with pytest.raises(GraphError, match="output z"):
        run_batched(graph, NumpyRunner(), 4)


def test_a_tensor_error_is_measured_in_real_values_and_in_steps() -> None:
    q = np.array([[3, 5], [-1, 127]], np.int8)
    scale = np.array([[0.5, 0.25]])
    f = np.array([[1.0, 1.0], [-1.0, 40.0]])
    found = tensor_error(f, q, scale, 1)
    assert found.noise == Noise(1603.0, 8.5**2)
    assert found.worst_steps == 34.0
    exact = tensor_error(scale * (q.astype(np.float64) - 1), q, scale, 1)
    assert (exact.noise.error, exact.worst_steps) == (0.0, 0.0)
    assert (found + exact).worst_steps == 34.0
    assert (found + exact).noise.error == found.noise.error


@given(seed=st.integers(0, 99), cut=st.integers(1, 9))
def test_tensor_errors_of_batches_add_up(seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    f, q = rng.normal(size=(10, 3)), rng.integers(-9, 9, (10, 3))
    scale = np.array([[0.1, 0.2, 0.3]])
    whole = tensor_error(f, q, scale, 2)
    parts = tensor_error(f[:cut], q[:cut], scale, 2) + tensor_error(f[cut:], q[cut:], scale, 2)
    assert parts.worst_steps == whole.worst_steps
    assert parts.noise.sqnr_db == pytest.approx(whole.noise.sqnr_db)


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_tensors_are_compared_in_pieces(order: Literal["C", "F"]) -> None:
    """Of several pieces, the last one shorter, and of arrays in any order."""
    rng, shape = np.random.default_rng(4), (2, 5, PIECE // 4 + 3)
    f = np.asarray(rng.normal(size=shape), np.float32, order=order)
    q = np.asarray(rng.integers(-99, 99, shape), np.int8, order=order)
    scale, zero = np.array([[[0.01], [0.02], [0.03], [0.04], [0.05]]]), np.arange(5).reshape(1, 5, 1)
    wide = f.astype(np.float64)
    real = scale * (q.astype(np.int64) - zero)
    found = tensor_error(f, q, scale, zero)
    noise = quantization_noise(f, real.astype(np.float32))
    for signal, error in (found.noise.signal, found.noise.error), (noise.signal, noise.error):
        assert signal == pytest.approx(np.square(wide).sum(), rel=1e-12)
        assert error == pytest.approx(np.square(wide - real).sum(), rel=1e-6)
    assert found.worst_steps == pytest.approx(np.abs((wide - real) / scale).max(), rel=1e-12)
    f[1, 4, -1] = np.nan
    assert math.isnan(tensor_error(f, q, scale, zero).worst_steps)
    nothing = tensor_error(f[:0], q[:0], scale, zero)
    assert (nothing.noise, nothing.worst_steps) == (Noise(), 0.0)


def integer_chain() -> Graph:
    """x, from it a wide form, and that form once cut to [0, 9] and once whole, in this order."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3), "int8"))
    wide = builder.apply(PlusScalar(1), [x], "t")
    whole = builder.apply(Clip(a_min=-90, a_max=90), [wide], "t_whole", "t")
    cut = builder.apply(Clip(a_min=0, a_max=9), [wide], "t_cut", "t")
    unknown = builder.apply(Relu(), [cut], "t_unknown", "t")
    constant = builder.parameter("t_constant", np.zeros((1, 3), np.int8), "t")
    return builder.graph([whole, unknown, constant])


def test_a_float_tensor_is_compared_where_it_is_last_seen_whole() -> None:
    graph = integer_chain()
    scales = {name: np.full((1, 1), 0.1) for name in ("x", "t", "t_whole", "t_cut", "t_constant")}
    bounds = {"x": (-99, 99), "t": (-98, 100), "t_whole": (-90, 90), "t_cut": (0, 9)}
    ranges = {"x": (-9.9, 9.9), "t": (-9.0, 9.0)}
    found = counterparts(graph, scales, {"t_whole": 0}, bounds, ranges)
    assert [(form.name, form.origin, form.zero_point) for form in found] == [("x", "x", 0), ("t_whole", "t", 0)]
    last = counterparts(graph, scales, {"t_cut": 4}, bounds, {"t": (-0.4, 0.5)})
    assert [(form.name, form.zero_point) for form in last] == [("x", 0), ("t_cut", 4)]
    nowhere_whole = counterparts(graph, scales, {}, bounds, {"t": (-99.0, 99.0)})
    assert [form.name for form in nowhere_whole] == ["x", "t_cut"]


def test_one_sample_is_walked_even_where_a_batch_is_baked_in() -> None:
    x = np.array([[-1.0, 0.0, 2.0]], np.float32)
    builder = GraphBuilder()
    baked = builder.input("x", TensorType((2, 3)))
    fixed = builder.graph([builder.apply(Reshape(shape=(3, 2)), [baked], "y")])
    for graph, count in ((relu_graph(), 1), (Rebatch(4)(relu_graph()), 1), (fixed, 2)):
        values = {symbol.name: value for symbol, value in sample_walk(graph)({"x": x})}
        np.testing.assert_array_equal(values["x"], np.repeat(x, count, axis=0))
        assert values["y"].size == 3 * count
