"""Operators that move values and change none: reshape, transpose, concatenate and their like; filled tensors."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.folding import check_size
from mrt.frontend.shared.shaping import broadcast, expanded, reshaped
from mrt.frontend.tvm.node import graph_dtype
from mrt.frontend.tvm.transform import batch_flatten, concat, permute_dims, stack
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.transform import Reshape, Squeeze

converter("nn.batch_flatten")(batch_flatten)
converter("transpose")(permute_dims)
converter("concatenate")(concat)
converter("stack")(stack)


@converter("reshape")
def reshape(node: Node) -> Symbol:
    """newshape has MXNet's codes: 0 copies, -1 infers, -2 copies the rest, -3 merges two, -4 splits one."""
    data, codes = node.symbol(0), node.sizes("newshape")
    if 0 in codes and node.flag("allowzero"):
        raise node.unsupported("attribute allowzero", True, "False, or no size of 0,")
    try:
        target = Reshape(shape=codes).infer(data.type).shape if codes else ()
    except GraphError as error:
        raise GraphError(f"{node.label}: {error}") from None
    if math.prod(target) != data.type.size:
        raise GraphError(f"{node.label}: {data.type} does not fit the target shape {target}")
    return reshaped(node, data, target)


@converter("reshape_like")
def reshape_like(node: Node) -> Symbol:
    """The axes lhs_begin to lhs_end in the shape of the other's axes rhs_begin to rhs_end."""
    data, own, other = node.symbol(0), node.shape(0), node.shape(1)
    left = slice(node.integer("lhs_begin"), node.optional_integer("lhs_end")).indices(len(own))
    right = slice(node.integer("rhs_begin"), node.optional_integer("rhs_end")).indices(len(other))
    target = (*own[: left[0]], *other[right[0] : right[1]], *own[left[1] :])
    if math.prod(target) != data.type.size:
        raise GraphError(f"{node.label}: {data.type} does not fit the target shape {target}")
    return reshaped(node, data, target)


@converter("expand_dims")
def expand_dims(node: Node) -> Symbol:
    """num_newaxis axes of size 1, from `axis` of the result on."""
    data, count = node.symbol(0), node.integer("num_newaxis")
    if not 0 <= count <= 32:
        raise GraphError(f"{node.label}: attribute num_newaxis is {count}; 0 to 32 are needed")
    if not count:
        return data
    given = node.integer("axis")
    first = given if given >= 0 else given + data.type.rank + 1
    if not 0 <= first <= data.type.rank:
        raise GraphError(f"{node.label}: axis {given} is outside a tensor of rank {data.type.rank + 1}")
    return expanded(node, data, range(first, first + count))


@converter("squeeze")
def squeeze(node: Node) -> Symbol:
    """Takes the named axes away, which must have size 1, else every axis of size 1."""
    data = node.symbol(0)
    every = tuple(axis for axis, size in enumerate(data.shape) if size == 1)
    axes = every if node.is_none("axis") else node.axes("axis", data.type.rank)
    return node.apply(Squeeze(axis=axes), [data]) if axes else data


@converter("broadcast_to")
def broadcast_to(node: Node) -> Symbol:
    return _broadcast(node, node.sizes("shape"))


@converter("broadcast_to_like")
def broadcast_to_like(node: Node) -> Symbol:
    return _broadcast(node, node.shape(1))


def _broadcast(node: Node, shape: tuple[int, ...]) -> Symbol:
    data = node.symbol(0)
    check_size(node, shape)
    try:
        fits = np.broadcast_shapes(data.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise GraphError(f"{node.label}: {data.type} does not broadcast to {shape}")
    return broadcast(node, data, shape)


@converter("layout_transform")
def layout_transform(node: Node) -> Symbol:
    """From one order of the axes to another."""
    source, target = node.text("src_layout"), node.text("dst_layout")
    if sorted(source) != sorted(target) or len(set(source)) != len(source) or len(source) != len(node.shape(0)):
        raise node.unsupported("attribute dst_layout", f"{target} from {source}", "another order of the same axes")
    return transposed(node, node.symbol(0), [source.index(letter) for letter in target])


@converter("zeros", "ones")
def filled(node: Node) -> Array:
    return _full(node, node.sizes("shape"), float(node.kind == "ones"), node.out_dtype("dtype", "float32"))


@converter("full")
def full(node: Node) -> Array:
    value = node.known(0, "fill_value")
    return _full(
        node, node.sizes("shape"), node.known_number(0, "fill_value"), node.out_dtype("dtype", value.dtype.name)
    )


@converter("zeros_like", "ones_like")
def filled_like(node: Node) -> Array:
    return _full(node, node.shape(0), float(node.kind == "ones_like"), node.result_dtype)


@converter("full_like")
def full_like(node: Node) -> Array:
    return _full(node, node.shape(0), node.known_number(1, "fill_value"), node.result_dtype)


def _full(node: Node, shape: tuple[int, ...], value: float, dtype: str) -> Array:
    check_size(node, shape)
    try:
        return np.full(shape, value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise GraphError(f"{node.label}: no {dtype} of shape {shape} can be filled with {value}: {error}") from None


@converter("shape_of")
def shape_of(node: Node) -> Array:
    return np.asarray(node.shape(0), dtype=_integer_dtype(node))


@converter("ndarray_size")
def ndarray_size(node: Node) -> Array:
    return np.asarray(math.prod(node.shape(0)), dtype=_integer_dtype(node))


def _integer_dtype(node: Node) -> str:
    dtype = graph_dtype(node.out_dtype("dtype", "int32"))
    if dtype not in ("int32", "int64"):
        raise node.unsupported("attribute dtype", dtype, "int32 or int64")
    return dtype
