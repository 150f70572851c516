"""Operators that arrange and choose: against NumPy and real MXNet, as samples of a batch, and as graphs read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from applied import infer, run
from mxnet_files import covered_outputs

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.symbol import GraphBuilder, Interval, Operator, TensorType
from mrt.symbol.mxnet_json import graph_from_json
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    ElemwiseMaximum,
    Embedding,
    MaximumScalar,
    Min,
    Where,
)
from mrt.symbol.operators.transform import Take
from mrt.symbol.rebatch import Rebatch

X = np.arange(2 * 8 * 4 * 6, dtype=np.float32).reshape(2, 8, 4, 6) % 17
COVERED = {
    "deconvolution_groups": 1,
    "deconvolution_s2_adj": 1,
    "deconvolution_target_shape": 1,
    "embedding": 1,
    "slicechannel": 3,
    "slicechannel_all_outputs": 3,
    "slices": 6,
    "space_depth": 2,
    "tile_repeat": 3,
    "upsampling": 1,
    "upsampling_multi_concat": 1,
    "where_take_onehot": 1,
}
"""How many outputs of MXNet's fixtures are covered; all but stack, broadcast_to, broadcast_axis, one_hot and a
comparison are."""


@pytest.mark.parametrize("name", COVERED)
def test_fixtures_equal_mxnet(data_folder: Path, name: str) -> None:
    cases = list(covered_outputs(data_folder / "mxnet" / "ops" / name))
    assert len(cases) >= COVERED[name]
    for case in cases:
        for sample, expected in enumerate(case.expected):
            (result,) = case.graph.evaluate({key: value[sample] for key, value in case.inputs.items()})
            assert result.shape == expected.shape, case.name
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6, err_msg=case.name)


@pytest.mark.parametrize(
    ("folder", "op"),
    [
        ("transpose_dims", "SwapAxis"),
        ("reductions", "min"),
        ("reductions", "argmax"),
        ("broadcast_ops", "broadcast_maximum"),
        ("broadcast_ops", "broadcast_minimum"),
        ("elemwise_ops", "_maximum"),
        ("scalar_ops", "_maximum_scalar"),
        ("scalar_ops", "_minimum_scalar"),
        ("slices", "slice_like"),
    ],
)
def test_fixtures_cover(data_folder: Path, folder: str, op: str) -> None:
    """What the fixtures that hold other operators too compare with MXNet."""
    cases = list(covered_outputs(data_folder / "mxnet" / "ops" / folder))
    assert any(symbol.op == op for case in cases for symbol in case.graph.operators)


def test_arrangements_equal_numpy() -> None:
    np.testing.assert_array_equal(run(SwapAxis(1, -1), X), np.swapaxes(X, 1, 3))
    np.testing.assert_array_equal(run(SliceLike(), X, X[:1, :3, :, :5]), X[:1, :3, :, :5])
    np.testing.assert_array_equal(run(SliceLike(axes=(-1,)), X, X[0, 0, :, :2]), X[..., :2])
    for reps in ((2,), (2, 1, 1, 1, 3), (), (1, 3, 1, 1)):
        np.testing.assert_array_equal(run(Tile(reps), X), np.tile(X, reps))
    for axis in (None, 0, -1):
        np.testing.assert_array_equal(run(Repeat(3, axis), X), np.repeat(X, 3, axis))
    np.testing.assert_array_equal(run(UpSampling(2), X), np.kron(X, np.ones((2, 2), np.float32)))
    np.testing.assert_array_equal(run(DepthToSpace(2), run(SpaceToDepth(2), X)), X)
    assert run(DepthToSpace(2), X)[1, 1, 2 * 3 + 1, 2 * 5] == X[1, 2 * 2 + 1, 3, 5]


def test_selections_equal_numpy() -> None:
    np.testing.assert_array_equal(run(Min(axis=(1, 3)), X), X.min(axis=(1, 3)))
    assert run(Min(), X).shape == run(ArgMax(), X).shape == (1,)
    for axis in (1, -1):
        np.testing.assert_array_equal(run(ArgMax(axis), X), X.argmax(axis))
        np.testing.assert_array_equal(run(ArgMin(axis, keepdims=True), X), X.argmin(axis, keepdims=True))
    assert run(ArgMax(1), X.astype(np.int8)).dtype == np.int32
    assert run(ArgMin(keepdims=True), X).shape == (1, 1, 1, 1)
    rows, condition = np.array([0.0, -0.5], np.float32), X % 3
    np.testing.assert_array_equal(run(Where(), rows, X, -X), np.stack([-X[0], X[1]]))
    np.testing.assert_array_equal(run(Where(), condition, X, X[:, :1]), np.where(condition != 0, X, X[:, :1]))
    table, indices = np.arange(15, dtype=np.float32).reshape(5, 3), np.array([[-2.0, 1.9], [4.0, 7.0]], np.float32)
    np.testing.assert_array_equal(run(Embedding(5, 3), indices, table), table[[[0, 1], [4, 4]]])


def test_integers_keep_their_dtype() -> None:
    small = (X - 8).astype(np.int8)
    for operator in (ElemwiseMaximum(), BroadcastMaximum()):
        assert run(operator, small, -small).dtype == np.int8
        with pytest.raises(GraphError, match="one dtype is needed: cast them"):
            infer(operator, TensorType((2,), "int8"), TensorType((2,), "int16"))
    assert run(MaximumScalar(-3), small).min() == -3
    for scalar in (0.5, 128.0):
        with pytest.raises(GraphError, match="an integer that the dtype holds"):
            infer(MaximumScalar(scalar), TensorType((2,), "int8"))


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (SliceLike(), [(2, 3), (2, 4)], "no shorter"),
        (SliceLike(), [(2, 3), (2,)], "equal ranks"),
        (Tile((0,)), [(2, 3)], "at least 1"),
        (Repeat(0), [(2, 3)], "at least 1"),
        (UpSampling(2), [(2, 3, 4)], "rank 4"),
        (UpSampling(2, "bilinear"), [(1, 2, 3, 4)], "nearest is needed"),
        (DepthToSpace(2), [(1, 6, 2, 2)], "divides"),
        (SpaceToDepth(2), [(1, 6, 2, 3)], "divides"),
        (ElemwiseMaximum(), [(2, 3), (3,)], "broadcast_ operator"),
        (Embedding(5, 3), [(2,), (3, 5)], r"\(5, 3\) is needed"),
        (ArgMax(2), [(2, 3)], "outside"),
    ],
)
def test_what_does_not_fit_is_named(operator: Operator, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        infer(operator, *map(TensorType, shapes))


def test_bounds_of_known_conditions_and_indices_are_exact() -> None:
    condition = Interval(np.array([[0, 1, 0]]), np.array([[0, 5, 1]]), (1, 3))
    bounds = Where().bounds(condition, Interval.of(10, 20, (1, 3)), Interval.of(-2, -1, (1, 1)))
    np.testing.assert_array_equal(bounds.lo, [[-2, 10, -2]])
    np.testing.assert_array_equal(bounds.hi, [[-1, 20, 20]])
    table = Interval.constant(np.array([[1, 2], [5, -6], [9, 9]]))
    known = Embedding(3, 2).bounds(Interval.constant(np.array([1, 0])), table)
    np.testing.assert_array_equal(known.lo, [[5, -6], [1, 2]])
    free = Embedding(3, 2).bounds(Interval.of(0, 2, (4,)), table)
    assert (free.lo.tolist(), free.hi.tolist()) == ([[1, -6]], [[9, 9]])


APART: list[tuple[Operator, list[tuple[int, ...]]]] = [
    (SwapAxis(1, 2), [(1, 2, 3)]),
    (SliceLike(), [(1, 3), (1, 2)]),
    (SliceLike(axes=(1,)), [(1, 3), (5, 2)]),
    (Tile((1, 2)), [(1, 3)]),
    (Repeat(2, 1), [(1, 3)]),
    (UpSampling(2), [(1, 2, 3, 3)]),
    (ArgMax(1), [(1, 3)]),
    (Min((1,)), [(1, 3)]),
    (Embedding(5, 3), [(1, 4), (5, 3)]),
    (Where(), [(1, 3), (1, 3), (3,)]),
]
TOGETHER: list[tuple[Operator, list[tuple[int, ...]]]] = [
    (SwapAxis(0, 2), [(1, 2, 3)]),
    (SliceLike(), [(2, 3), (1, 2)]),
    (Tile((2, 1)), [(1, 3)]),
    (Tile((1, 1, 1)), [(1, 3)]),
    (Repeat(2), [(1, 3)]),
    (Repeat(2, 0), [(1, 3)]),
    (ArgMax(), [(1, 3)]),
    (ArgMin(0), [(1, 3)]),
    (Min(), [(1, 3)]),
]


@pytest.mark.parametrize(("operator", "shapes"), APART, ids=str)
def test_samples_stay_apart(operator: Operator, shapes: list[tuple[int, ...]]) -> None:
    assert operator.batch_obstacle(*map(TensorType, shapes)) == ""


@pytest.mark.parametrize(("operator", "shapes"), TOGETHER, ids=str)
def test_what_mixes_samples_says_so(operator: Operator, shapes: list[tuple[int, ...]]) -> None:
    assert operator.batch_obstacle(*map(TensorType, shapes))


def test_a_table_serves_every_batch() -> None:
    builder = GraphBuilder()
    indices = builder.input("i", TensorType((1, 3), "int32"))
    table = builder.parameter("table", np.arange(10, dtype=np.float32).reshape(5, 2))
    graph = builder.graph([builder.apply(Take(), [table, indices], "rows")])
    (result,) = Rebatch(4)(graph).evaluate({"i": np.arange(12, dtype=np.int32).reshape(4, 3) % 5})
    np.testing.assert_array_equal(result[..., 0] / 2, np.arange(12).reshape(4, 3) % 5)


def test_taking_from_the_batch_or_away_from_its_axis_is_refused() -> None:
    for axis, shape in ((0, (1, 5)), (1, (1, 5))):
        builder = GraphBuilder()
        x, indices = builder.input("x", TensorType(shape)), builder.input("i", TensorType((1, 3), "int32"))
        graph = builder.graph([builder.apply(Take(axis=axis), [x, indices], "rows")])
        with pytest.raises(GraphError, match=r"rows \(take\)"):
            Rebatch(4)(graph)
    builder = GraphBuilder()
    table = builder.parameter("table", np.ones((1, 5), np.float32))
    indices = builder.input("i", TensorType((1, 3), "int32"))
    graph = builder.graph([builder.apply(Take(axis=1), [table, indices], "rows")])
    with pytest.raises(GraphError, match="indices hold the batch, and slices are taken along axis 1"):
        Rebatch(4)(graph)


def _json(nodes: list[dict[str, object]], heads: list[list[int]]) -> str:
    return json.dumps({"nodes": nodes, "heads": heads})


def _split(**attributes: str) -> dict[str, object]:
    return {"op": "split", "name": "parts", "attrs": attributes, "inputs": [[0, 0, 0]]}


DATA: dict[str, object] = {"op": "null", "name": "x", "inputs": []}
TYPES = {"x": TensorType((1, 6, 4))}


def test_outputs_of_a_split_are_slices() -> None:
    relu = {"op": "relu", "name": "relu", "inputs": [[1, 1, 0]]}
    nodes = [DATA, _split(num_outputs="3"), relu]
    graph = graph_from_json(_json(nodes, [[1, 2, 0], [2, 0, 0], [1, 2, 0]]), {}, TYPES)
    assert [symbol.name for symbol in graph.outputs] == ["parts_output2", "relu", "parts_output2"]
    assert sorted(symbol.op for symbol in graph.operators) == ["relu", "slice_axis", "slice_axis"]
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    last, middle, _ = graph.evaluate({"x": x})
    np.testing.assert_array_equal(last, x[:, 4:])
    np.testing.assert_array_equal(middle, x[:, 2:4])


@pytest.mark.parametrize(
    ("attributes", "output", "message"),
    [
        ({"num_outputs": "4"}, 0, "output 0 of 4"),
        ({"num_outputs": "3"}, 3, "output 3 of 3"),
        ({"num_outputs": "3", "squeeze_axis": "True"}, 0, "1 is needed for squeeze_axis"),
        ({"num_outputs": "3", "axis": "5"}, 0, "axis 5 is outside"),
        ({}, 0, "output 0 of 0"),
        ({"num_outputs": "three"}, 0, "num_outputs is 'three'"),
    ],
)
def test_splits_that_do_not_fit(attributes: dict[str, str], output: int, message: str) -> None:
    with pytest.raises(GraphError, match=rf"parts \(split\): .*{message}"):
        graph_from_json(_json([DATA, _split(**attributes)], [[1, output, 0]]), {}, TYPES)


def test_up_sampling_of_several_images() -> None:
    attributes = {"scale": "2", "sample_type": "nearest", "num_args": "2", "multi_input_mode": "sum"}
    nodes = [
        DATA,
        {"op": "null", "name": "z", "inputs": []},
        {"op": "UpSampling", "name": "up", "attrs": attributes, "inputs": [[0, 0, 0], [1, 0, 0]]},
    ]
    types = {"x": TensorType((1, 2, 2, 3)), "z": TensorType((1, 2, 1, 1 + 1))}
    with pytest.raises(GraphError, match=r"up \(UpSampling\)|up \(add_n\)"):
        graph_from_json(_json(nodes, [[2, 0, 0]]), {}, types)
    types["z"] = TensorType((1, 2, 4, 6))
    graph = graph_from_json(_json(nodes, [[2, 0, 0]]), {}, types)
    x, z = X[:1, :2, :2, :3], X[:1, :2, :4, :6]
    np.testing.assert_array_equal(graph.evaluate({"x": x, "z": z})[0], x.repeat(2, 2).repeat(2, 3) + z)


def test_bilinear_up_sampling_is_not_covered() -> None:
    attributes = {"scale": "2", "sample_type": "bilinear", "num_args": "2"}
    nodes = [DATA, {"op": "UpSampling", "name": "up", "attrs": attributes, "inputs": [[0, 0, 0]]}]
    with pytest.raises(UnsupportedOperatorError, match=r"UpSampling sample_type=bilinear \(1: up\)"):
        graph_from_json(_json(nodes, [[1, 0, 0]]), {}, TYPES)


def test_deconvolution_has_no_bias_unless_it_says_so() -> None:
    assert Deconvolution(kernel=(2,), num_filter=1).no_bias
