"""Elements at constant places, and elements put there, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import assert_agrees, make_model, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.symbol.rebatch import Rebatch

RNG = np.random.default_rng(5)
BATCHED = np.stack([np.stack([np.full(3, batch), np.array([2, 0, -1])], -1) for batch in range(2)])
"""Of both samples the elements 2, 0 and the last of axis 1."""


def indices(*shape: int, size: int) -> np.ndarray:
    return RNG.integers(-size, size, shape)


@pytest.mark.parametrize("axis, shape", [(0, (5, 3, 4)), (1, (2, 6, 4)), (-1, (2, 3, 2)), (2, (1, 2, 9))])
def test_gather_elements(axis: int, shape: tuple[int, ...]) -> None:
    places = indices(*shape, size=(2, 3, 4)[axis])
    assert_agrees(single("GatherElements", (2, 3, 4), {"i": places}, axis=axis))


@pytest.mark.parametrize(
    "batch_axes, shape", [(0, (5, 1)), (0, (2, 3, 2)), (0, (4, 3)), (1, (2, 3, 1)), (2, (2, 3, 1))]
)
def test_gather_nd(batch_axes: int, shape: tuple[int, ...]) -> None:
    parts = [RNG.integers(-size, size, shape[:-1]) for size in (2, 3, 4)[batch_axes:][: shape[-1]]]
    assert_agrees(single("GatherND", (2, 3, 4), {"i": np.stack(parts, -1)}, batch_dims=batch_axes))


@pytest.mark.parametrize("axis, shape", [(0, (1, 3, 4)), (1, (2, 2, 3)), (2, (2, 3, 4))])
def test_scatter_elements(axis: int, shape: tuple[int, ...]) -> None:
    places = RNG.permuted(np.broadcast_to(np.arange((2, 3, 4)[axis]), (60, (2, 3, 4)[axis])), axis=1)
    order = np.moveaxis(places[: 24 // (2, 3, 4)[axis]].reshape(*np.delete((2, 3, 4), axis), -1), -1, axis)
    chosen = order[tuple(slice(0, size) for size in shape)].astype(np.int64)
    updates = RNG.standard_normal(shape).astype(np.float32)
    assert_agrees(single("ScatterElements", (2, 3, 4), {"i": chosen, "updates": updates}, 13, axis=axis))


@pytest.mark.parametrize("places", [[[1]], [[0, 2], [1, -1]], [[1, 2, -4], [0, 0, 3]]], ids=["rows", "two", "all"])
def test_scatter_nd(places: list[list[int]]) -> None:
    named = np.array(places, np.int64)
    updates = RNG.standard_normal((len(places), *(2, 3, 4)[named.shape[-1] :])).astype(np.float32)
    assert_agrees(single("ScatterND", (2, 3, 4), {"i": named, "updates": updates}, 13))


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_what_is_put_somewhere_is_combined_with_what_is_there(reduction: str) -> None:
    named = {"i": np.array([[1], [0], [1], [-1], [1]])}
    updates = {"updates": RNG.standard_normal((5, 4)).astype(np.float32)}
    assert_agrees(single("ScatterND", (3, 4), named | updates, 18, reduction=reduction))
    rows = {"i": np.array([[0, 1], [2, 1]])} | {"updates": updates["updates"][:2, :2]}
    assert_agrees(single("ScatterElements", (3, 4), rows, 18, reduction=reduction, axis=0))


@pytest.mark.parametrize("operator, constants", [("GatherND", {"i": BATCHED}), ("GatherElements", {})])
def test_places_that_are_those_of_every_sample_keep_the_batch(operator: str, constants: dict[str, np.ndarray]) -> None:
    same = np.broadcast_to(indices(3, 4, size=3), (2, 3, 4)).copy()
    model = single(operator, (2, 3, 4), constants or {"i": same}, **({} if constants else {"axis": 1}))
    graph = from_onnx(model)
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    (both,), (one,) = graph.evaluate({"x": x}), Rebatch(1)(graph).evaluate({"x": x[1:]})
    np.testing.assert_array_equal(both[1:], one)


INTEGER = {"i": TensorProto.INT64}


def chosen_by(operator: str, shape: tuple[int, ...], places: tuple[int, ...], **attributes: int) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x", "i"], ["y"], **attributes)
    return make_model([node], {"x": shape, "i": places}, dtypes=INTEGER)


@pytest.mark.parametrize("axis, places", [(1, (2, 5, 4)), (-1, (2, 3, 1)), (2, (2, 3, 6))])
def test_elements_at_places_that_the_data_decide(axis: int, places: tuple[int, ...]) -> None:
    length = (2, 3, 4)[axis]
    given = {"x": RNG.standard_normal((2, 3, 4)).astype(np.float32), "i": indices(*places, size=length)}
    assert_agrees(chosen_by("GatherElements", (2, 3, 4), places, axis=axis), given)


@pytest.mark.parametrize("batch_axes, places", [(1, (2, 1)), (1, (2, 5, 1)), (2, (2, 3, 1))])
def test_rows_at_places_that_the_data_decide(batch_axes: int, places: tuple[int, ...]) -> None:
    given = {"x": RNG.standard_normal((2, 3, 4)).astype(np.float32)}
    given["i"] = indices(*places, size=(2, 3, 4)[batch_axes])
    assert_agrees(chosen_by("GatherND", (2, 3, 4), places, batch_dims=batch_axes), given)


def test_integers_at_the_place_of_the_largest_beside_the_number_of_the_row() -> None:
    """x[arange(batch), x.argmax(-1)] as PyTorch exports it, of integers beyond what floats tell apart."""
    nodes = [
        helper.make_node("ArgMax", ["i"], ["place"], axis=1, keepdims=1),
        helper.make_node("Concat", ["rows", "place"], ["places"], axis=1),
        helper.make_node("GatherND", ["i", "places"], ["y"]),
    ]
    rows = {"rows": np.arange(3)[:, None]}
    model = make_model(nodes, {"i": (3, 7)}, constants=rows, dtypes={"i": TensorProto.INT64, "y": TensorProto.INT64})
    given = RNG.integers(2**24, 2**26, (3, 7))
    (found,) = from_onnx(model).evaluate({"i": given})
    np.testing.assert_array_equal(found, given.max(1))


def test_constant_elements_of_fewer_columns_are_computed() -> None:
    nodes = [
        helper.make_node("GatherElements", ["table", "places"], ["row"], axis=1),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    constants = {"table": np.arange(9, dtype=np.float32)[None], "places": np.array([[3, -1]])}
    assert_agrees(make_model(nodes, {"x": (1, 2)}, constants=constants))


def test_places_along_the_batch_that_the_data_decide_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"for axis 0 of \(2, 3, 4\); a constant, or"):
        from_onnx(chosen_by("GatherElements", (2, 3, 4), (2, 3, 4), axis=0))


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="how often one place is named is 65; at most 64"):
        given = {"i": np.zeros((65, 1), np.int64), "updates": np.ones((65, 3), np.float32)}
        from_onnx(single("ScatterND", (2, 3), given, 16, reduction="add"))
    with pytest.raises(UnsupportedOperatorError, match="attribute reduction is mean"):
        from_onnx(single("ScatterND", (2, 3), {**given, "i": given["i"] * 0}, 16, reduction="mean"))
    with pytest.raises(GraphError, match=r"indices are no integers in \[-3, 3\)"):
        from_onnx(single("GatherElements", (2, 3), {"i": np.full((2, 3), 3)}, axis=1))
