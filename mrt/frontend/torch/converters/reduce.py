"""Reductions over axes, and the places of extremes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from mrt.frontend.torch.building import mapped
from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of

_REDUCTIONS: dict[str, Callable[..., Expression]] = {
    "amax": relax.op.max,
    "amin": relax.op.min,
    "max": relax.op.max,
    "mean": relax.op.mean,
    "min": relax.op.min,
    "prod": relax.op.prod,
    "sum": relax.op.sum,
}


@converter("amax.default", "amin.default", "mean.dim", "prod.dim_int", "sum.dim_IntList")
def over_axes(node: Node) -> Expression:
    """Over all axes where none is named."""
    data = node.operand("self", node.dtype)
    axes = node.axes("dim", len(shape_of(data)))
    return _REDUCTIONS[node.operator.partition(".")[0]](data, axes, node.flag("keepdim"))


@converter("max.default", "min.default", "mean.default", "prod.default", "sum.default")
def over_everything(node: Node) -> Expression:
    data = node.operand("self", node.dtype)
    return _REDUCTIONS[node.operator.partition(".")[0]](data, [*range(len(shape_of(data)))], False)


@converter(*(f"{name}.{overload}" for name in ("any", "all") for overload in ("default", "dim", "dims")))
def truth(node: Node) -> Expression:
    """Whether one element over the axes is not 0, or all: the largest or smallest of 1 and 0."""
    data = node.cast(node.operand("self", "bool"), "float32")
    axes = node.axes("dim", len(shape_of(data))) if "dim" in node.arguments else [*range(len(shape_of(data)))]
    keepdims = bool(node.arguments.get("keepdim"))
    extreme = relax.op.max if node.operator.startswith("any") else relax.op.min
    return node.cast(node.emit(extreme(data, axes, keepdims)), node.dtype) if axes else node.operand("self", "bool")


@converter("max.dim", "min.dim")
def extreme(node: Node) -> tuple[Expression, Expression]:
    """The extreme along one axis, and its place."""
    data, axis, keepdims = node.tensor("self"), node.integer("dim"), node.flag("keepdim")
    value, place = (relax.op.max, relax.op.argmax) if node.operator == "max.dim" else (relax.op.min, relax.op.argmin)
    return node.emit(value(data, [axis], keepdims)), node.emit(place(data, axis, keepdims))


@converter("argmax.default", "argmin.default")
def place(node: Node) -> Expression:
    find = relax.op.argmax if node.operator == "argmax.default" else relax.op.argmin
    axis = node.integer("dim") if node.has("dim") else None
    return find(node.tensor("self"), axis, node.flag("keepdim"))


@converter("cumsum.default")
def cumulated_sum(node: Node) -> Expression:
    """A product with a triangle of ones; of integers, which have no weights, products that are summed up."""
    data = node.operand("self", node.dtype)
    if not node.shape:
        raise node.unsupported("the data", "one number", "rank 1 or more")
    axis = node.integer("dim") % len(node.shape)
    triangle = np.tri(node.made(node.shape[axis], node.shape[axis])[0])
    if node.dtype == "float32":
        return mapped(node, data, axis, triangle)
    ones = triangle.reshape(*triangle.shape, *(1,) * (len(node.shape) - axis - 1))
    column = node.emit(relax.op.expand_dims(data, axis))
    return relax.op.sum(node.emit(relax.op.multiply(column, constant(ones, node.dtype))), axis + 1)


@converter("cumprod.default")
def cumulated_product(node: Node) -> Expression:
    data = node.operand("self", node.dtype)
    if node.dtype != "float32" or not node.shape:
        raise node.unsupported("the data", f"{node.dtype} of shape {node.shape}", "a float of rank 1 or more")
    return relax.op.cumprod(data, node.integer("dim") % len(node.shape), "float32")


@converter("var.correction")
def variance(node: Node) -> Expression:
    """The sum of squared distances to the mean of n elements over n - correction, which is 1 if not given."""
    data, keepdims = node.tensor("self"), node.flag("keepdim")
    shape = shape_of(data)
    axes = node.axes("dim", len(shape))
    count = math.prod(shape[axis] for axis in axes)
    degrees = count - (node.number("correction") if node.has("correction") else 1)
    if degrees <= 0:
        raise node.unsupported("the number of elements less the correction", degrees, "more than 0")
    distances = node.emit(relax.op.subtract(data, node.emit(relax.op.mean(data, axes, True))))
    squares = node.emit(relax.op.square(distances))
    mean = node.emit(relax.op.mean(squares, axes, keepdims))
    return mean if degrees == count else node.emit(relax.op.multiply(mean, constant(count / degrees)))


@converter("var_mean.correction")
def variance_and_mean(node: Node) -> tuple[Expression, Expression]:
    data = node.tensor("self")
    mean = relax.op.mean(data, node.axes("dim", len(shape_of(data))), node.flag("keepdim"))
    return variance(node), node.emit(mean)
