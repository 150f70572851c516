"""Relax operators that choose among values give what TVM computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import build, check, constant, operators, random, run
from tvm import tirx
from tvm.relax import op

from mrt.frontend.relax import from_relax


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_two_tensors(name: str) -> None:
    function = getattr(op, name)

    def body(x: Any, y: Any, z: Any) -> list[Any]:
        return [
            function(x, y),
            function(x, z),
            function(z, x),
            function(x, constant(random(3, 1, seed=7))),
            function(constant(random(2, 3, 4, seed=8)), x),
            function(z, constant(np.full((1, 1, 1), 0.25))),
            function(op.nn.relu(x), constant(1.0)),
        ]

    graph = check(body, x=(2, 3, 4), y=(2, 3, 4), z=(3, 1))
    found = [symbol.op for symbol in graph.outputs]
    assert found == [f"_{name}", *[f"broadcast_{name}"] * 5, "clip"]


@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (3, 1), (1, 1, 1), ()])
def test_where(shape: tuple[int, ...]) -> None:
    """Conditions of every shape that broadcasts; TVM broadcasts all three as NumPy does."""
    condition = np.random.default_rng(2).integers(0, 2, shape).astype(bool)
    feeds = {"c": condition, "x": random(2, 3, 4), "y": random(3, 1, seed=1)}

    def body(c: Any, x: Any, y: Any) -> list[Any]:
        return [
            op.where(c, x, y),
            op.where(c, y, x),
            op.where(c, x, constant(0.5)),
            op.where(constant(condition, "bool"), x, y),
            op.where(constant(condition, "bool"), constant(random(4)), x),
        ]

    graph = check(body, feeds, c=(shape, "bool"), x=(2, 3, 4), y=(3, 1))
    assert "where" in operators(graph)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("shape", [(3, 4, 5), (6,)])
def test_places_of_extremes(shape: tuple[int, ...], axis: int | None, keepdims: bool) -> None:
    """TVM gives int64, the graph what the data is. Of equal elements the first counts."""
    data = np.random.default_rng(3).integers(-2, 3, shape).astype("float32")
    mod = build(lambda x: [op.argmax(x, axis, keepdims), op.argmin(x, axis, keepdims)], x=shape)
    for ours, theirs in zip(from_relax(mod).evaluate({"x": data}), run(mod, {"x": data}), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


def test_place_cast_to_an_integer() -> None:
    data = random(2, 7, 3)
    graph = check(lambda x: op.astype(op.argmax(x, 1), "int32"), {"x": data}, x=data.shape)
    assert operators(graph) == ["argmax", "Cast"]


def test_floats_are_truncated_to_integers() -> None:
    data = np.array([-2.9, -2.0, -0.5, 0.0, 0.5, 1.999, 100.0], dtype="float32")
    check(lambda x: [op.astype(x, "int32"), op.astype(x, "int8"), op.astype(x, "bool")], {"x": data}, x=data.shape)


@pytest.mark.parametrize("axis", [0, -1])
def test_one_hot_along_any_axis(axis: int) -> None:
    feeds = {"x": np.array([[2, 0, 3]], np.int32)}
    mod = build(
        lambda x: op.one_hot(x, tirx.FloatImm("float32", 2.0), tirx.FloatImm("float32", -1.0), 4, axis),
        x=((1, 3), "int32"),
    )
    expected = np.moveaxis(np.where(np.arange(4) == feeds["x"][..., None], 2.0, -1.0), -1, axis)
    assert (from_relax(mod).evaluate(feeds)[0] == expected).all()


@pytest.mark.parametrize("k", [-4, -1, 0, 2, 9])
def test_triangles(k: int) -> None:
    check(lambda x: [op.tril(x, k), op.triu(x, k)], x=(2, 3, 4))


def test_equations() -> None:
    check(
        lambda x, y: [op.einsum((x, y), "bij,bjk->bik"), op.einsum((x, y), "bij,bjk->k"), op.einsum((x,), "bij->jb")],
        x=(2, 3, 4),
        y=(2, 4, 5),
    )


@pytest.mark.parametrize("axis", [1, -1])
def test_the_first_in_order(axis: int) -> None:
    """TVM too has the lower place first of equal elements where it sorts stably; places are what the data is here."""
    data = np.random.default_rng(1).permutation(40).reshape(2, 4, 5).astype("float32")

    def body(x: Any) -> list[Any]:
        both = op.topk(x, 3, axis, "both", True, "int32")
        ends = [op.topk(x, 2, axis, "values", False), op.topk(x, 0, axis, "indices", True, "int32")]
        return [both[0], both[1], *ends, op.sort(x, axis, True), op.argsort(x, axis, False, "int32")]

    graph = from_relax(build(body, x=data.shape))
    order = np.argsort(data, axis=axis)
    back = np.flip(order, axis)
    places = [back.take(range(3), axis), order.take(range(2), axis), back]
    wanted = [np.take_along_axis(data, places[0], axis), places[0], np.take_along_axis(data, places[1], axis), back]
    wanted += [np.take_along_axis(data, back, axis), order]
    for found, right in zip(graph.evaluate({"x": data}), wanted, strict=True):
        np.testing.assert_array_equal(found, right)
