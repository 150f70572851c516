"""Every Relax operator that is covered, read and evaluated, gives what TVM computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import build, check, constant, operators, random
from tvm import relax
from tvm.relax import op

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.relax import from_relax

# Matrix products


@pytest.mark.parametrize(
    ("data", "matrix"), [((2, 4), (4, 3)), ((1, 5, 4), (4, 3)), ((4,), (4, 3)), ((2, 4), (4,)), ((1, 2, 4), (1, 4, 3))]
)
def test_matmul_with_a_constant_on_the_right_is_fully_connected(data: Any, matrix: Any) -> None:
    graph = check(lambda x: op.matmul(x, constant(random(*matrix, seed=3))), x=data)
    assert "FullyConnected" in operators(graph)


def test_matmul_with_a_constant_on_the_left() -> None:
    graph = check(lambda x: op.matmul(constant(random(5, 4)), x), x=(2, 4, 3))
    assert operators(graph) == ["transpose", "FullyConnected", "transpose"]


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [((2, 3, 4), (2, 4, 5)), ((1, 2, 3, 4), (3, 1, 4, 2)), ((2, 3, 4), (4, 5)), ((4,), (2, 4, 3))],
)
def test_matmul_of_two_symbols_is_batch_dot(lhs: Any, rhs: Any) -> None:
    assert "batch_dot" in operators(check(op.matmul, x=lhs, y=rhs))


def test_matmul_of_two_matrices_is_dot() -> None:
    assert operators(check(op.matmul, x=(3, 4), y=(4, 5))) == ["dot"]
    assert operators(check(lambda x: op.matmul(constant(random(3, 4)), x), x=(4, 5))) == ["dot"]


def test_linear() -> None:
    weight, bias = random(5, 4), random(5, seed=1)
    graph = check(lambda x: op.linear(x, constant(weight), constant(bias)), x=(2, 4))
    assert operators(graph) == ["FullyConnected"]


# Activations and normalisation


def test_activations() -> None:
    def body(x: Any) -> list[Any]:
        return [
            op.nn.relu(x),
            op.nn.relu6(x),
            op.clip(x, -0.5, 1.25),
            op.clip(x, 1.0, 0.5),
            op.nn.leakyrelu(x, 0.3),
            op.nn.prelu(x, constant([0.2, 0.2, 0.2]), 1),
            op.nn.prelu(x, constant([0.2, 1.5, -0.5]), 1),
            op.nn.silu(x),
            op.nn.softmax(x, 1),
            op.nn.softmax(x),
            op.sigmoid(x),
            op.tanh(x),
            op.square(x),
            op.negative(x),
            op.maximum(x, constant(0.0)),
            op.maximum(constant(0.5), x),
            op.minimum(op.maximum(x, constant(0.0)), constant(1.0)),
            op.minimum(op.maximum(x, constant(1.0)), constant(0.5)),
        ]

    graph = check(body, x=(1, 3, 4))
    assert [graph.outputs[place].op for place in (14, 15, 16)] == ["relu", "clip", "clip"]


@pytest.mark.parametrize("axis", [1, 3, -1])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(axis: int, affine: bool) -> None:
    gamma, beta, mean = (constant(random(4, seed=seed)) for seed in range(3))
    variance = constant(np.abs(random(4, seed=3)) + 0.1)

    def body(x: Any) -> Any:
        options = {"axis": axis, "epsilon": 1e-3, "center": affine, "scale": affine, "training": False}
        return relax.TupleGetItem(op.nn.batch_norm(x, gamma, beta, mean, variance, **options), 0)

    assert operators(check(body, x=(1, 4, 5, 4))) == ["BatchNorm"]


@pytest.mark.parametrize("axes", [-1, [-2, -1], [1, 2]])
def test_layer_norm(axes: Any) -> None:
    shape = (4,) if axes == -1 else (3, 4)
    gamma, beta = constant(random(*shape)), constant(random(*shape, seed=1))
    check(lambda x: op.nn.layer_norm(x, gamma, beta, axes=axes, epsilon=1e-3), x=(2, 3, 4))


def test_dropout_is_kept_and_does_nothing() -> None:
    data = random(2, 3)
    mod = build(lambda x: relax.TupleGetItem(op.nn.dropout(x, 0.25), 0), x=(2, 3))
    graph = from_relax(mod)
    assert operators(graph) == ["Dropout"]
    np.testing.assert_array_equal(graph.evaluate({"x": data})[0], data)


# Arithmetic


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_arithmetic(name: str) -> None:
    function = getattr(op, name)
    same, row, one = np.abs(random(2, 3, 4)) + 1, np.abs(random(1, 3, 1)) + 1, np.full((1, 1, 1), 1.5)

    def body(x: Any, y: Any, z: Any) -> list[Any]:
        return [
            function(x, op.add(y, constant(3.0))),
            function(x, op.add(z, constant(3.0))),
            function(z, op.add(x, constant(3.0))),
            function(x, constant(same)),
            function(x, constant(row)),
            function(x, constant(2.5)),
            function(constant(2.5), op.add(x, constant(3.0))),
            function(x, constant(one)),
            function(z, constant(np.full((1, 1, 1), 1.5))),
        ]

    graph = check(body, x=(2, 3, 4), y=(2, 3, 4), z=(3, 1))
    named = {"add": "plus", "subtract": "minus", "multiply": "mul", "divide": "div"}[name]
    assert graph.outputs[5].op == f"_{named}_scalar"
    assert graph.outputs[1].op.startswith("broadcast_")
    assert graph.outputs[0].op == ("broadcast_div" if name == "divide" else f"elemwise_{name[:3]}")


# Moving values


def test_transforms() -> None:
    def body(x: Any) -> list[Any]:
        return [
            op.reshape(x, (2, 12)),
            op.reshape(x, (2, 2, 6)),
            op.reshape(x, (6, -1)),
            op.flatten(x),
            op.nn.batch_flatten(x),
            op.permute_dims(x),
            op.permute_dims(x, (0, 2, -2)),
            op.permute_dims(op.permute_dims(x, (1, 2, 0)), (2, 0, 1)),
            op.expand_dims(x, 1),
            op.expand_dims(x, [-1, 0]),
            op.squeeze(op.expand_dims(x, [0, 3])),
            op.squeeze(op.expand_dims(x, [0, 3]), [3]),
            op.broadcast_to(x, (2, 3, 4)),
            op.broadcast_to(x, (2, 2, 3, 4)),
            op.concat([x, x, constant(random(2, 1, 4))], 1),
            op.stack([x, x], -1),
        ]

    check(body, x=(2, 3, 4))


def test_slices() -> None:
    def body(x: Any) -> list[Any]:
        return [
            op.strided_slice(x, [1], [1], [3]),
            op.strided_slice(x, [2, 0], [0, 1], [100, 2], [2, 1]),
            op.strided_slice(x, [-1], [-3], [-1]),
            op.strided_slice(x, [2], [5], [0], [-2]),
            op.strided_slice(x, [2], [5], [-7], [-1]),
            op.strided_slice(x, [1], [0], [9223372036854775807], [2]),
            op.split(x, 3, 1),
            op.split(x, 2, 1),
            op.split(x, [1, 4], -1),
            op.take(x, constant(1, "int64"), 1),
            op.take(x, constant([1, 2], "int64"), 2),
            op.take(x, constant([[3, 0], [1, 1]], "int64"), 2),
            op.take(x, constant([-1, 9], "int64"), 2, mode="clip"),
            op.take(x, constant([-1, 7], "int64"), 2, mode="wrap"),
        ]

    check(body, x=(2, 3, 6))


def test_take_with_computed_indices() -> None:
    table, indices = random(5, 3), np.array([[4, 0], [2, 2]], dtype="int32")
    check(lambda i: op.take(constant(table), i, axis=0), feeds={"i": indices}, i=((2, 2), "int32"))


def test_pad() -> None:
    def body(x: Any) -> list[Any]:
        widths = [0, 0, 1, 2, 2, 0]
        return [
            op.nn.pad(x, widths),
            op.nn.pad(x, widths, "constant", 1.5),
            op.nn.pad(x, widths, "reflect"),
            op.nn.pad(x, widths, "replicate"),
            op.nn.pad(x, [0] * 6),
        ]

    check(body, x=(2, 4, 3))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, [-1, 0]])
def test_reductions(axis: Any, keepdims: bool) -> None:
    check(lambda x: [f(x, axis, keepdims) for f in (op.sum, op.mean, op.max, op.min, op.variance)], x=(2, 3, 4))


# Values that do not depend on the data


def test_constants_are_computed() -> None:
    weight = random(3, 4)

    def body(x: Any) -> list[Any]:
        scale = op.sqrt(op.add(constant([1.0, 2.0, 3.0, 4.0]), constant(1e-5)))
        kernel = op.multiply(op.permute_dims(constant(weight)), op.expand_dims(op.rsqrt(scale), 1))
        return [
            op.matmul(x, kernel),
            op.add(x, op.full((2, 4), constant(2.0), "float32")),
            op.multiply(x, op.ones_like(x)),
            op.add(x, op.zeros((1, 4), "float32")),
            op.where(op.greater(constant([1.0, -1.0]), constant(0.0)), constant(1.0), constant(2.0)),
        ]

    graph = check(body, x=(2, 4))
    assert operators(graph) == ["FullyConnected", "broadcast_add", "broadcast_mul", "broadcast_add"]


def test_casts() -> None:
    indices = np.array([[1, 2]], dtype="int32")
    check(lambda i: op.astype(i, "float32"), feeds={"i": indices}, i=((1, 2), "int32"))
    graph = from_relax(build(lambda x: op.nn.relu(op.astype(op.astype(x, "float16"), "float32")), x=(1, 2)))
    assert operators(graph) == ["relu"]


def test_elementwise_operators_of_two_tensors() -> None:
    points = {"y": np.float32([[0.5, -2, 0], [3, -1, 0]]), "x": np.float32([[1, 0.3, -2], [-1, -4, 3]])}
    check(op.atan2, feeds=points, y=(2, 3), x=(2, 3))
    check(lambda x, y: op.floor_mod(x, op.add(op.abs(y), constant(0.7))), x=(2, 3), y=(2, 3))
    check(lambda x: op.cumprod(x, 1), x=(2, 5))
    check(lambda x: op.cumsum(op.cumsum(x, 1), 0, exclusive=True), x=(2, 5))
    check(lambda x: op.cumprod(x, 1, exclusive=True), x=(2, 5))
    check(lambda x: op.nn.prelu(x, constant([0.1, -0.2, 0.3, 0.4]), 2), x=(1, 2, 4, 3))
    check(lambda x, a: op.nn.prelu(x, a, 1), x=(1, 2, 4, 3), a=(2,))


def test_grids() -> None:
    grid = constant(np.random.default_rng(1).uniform(-1.2, 1.2, (1, 2, 3, 4)).astype("float32"))
    graph = from_relax(
        build(lambda x: op.image.grid_sample(x, grid, "bilinear", "NCHW", "border", True), x=(1, 2, 5, 4))
    )
    assert graph.outputs[0].shape == (1, 2, 3, 4)


# What is not covered


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "circular"), "pad_mode is circular"),
        (lambda x: op.nn.layer_norm(x, constant(np.ones(2)), constant(np.ones(2)), axes=[1]), "axes is (1,)"),
        (lambda x: op.nn.conv2d(x, op.nn.relu(constant(np.ones((2, 2, 1, 1)))), out_layout="NCHW2c"), "out_layout"),
    ],
)
def test_uses_that_are_not_covered_are_refused(body: Any, found: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=found.replace("(", r"\(").replace(")", r"\)")):
        from_relax(build(body, x=(1, 2, 4, 4)))


def test_training_batch_norm_is_refused() -> None:
    ones = constant(np.ones(2))
    mod = build(lambda x: relax.TupleGetItem(op.nn.batch_norm(x, ones, ones, ones, ones, axis=1), 0), x=(1, 2, 4))
    with pytest.raises(UnsupportedOperatorError, match="training is True"):
        from_relax(mod)
