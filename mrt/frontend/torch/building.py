"""Building blocks of several converters: a batch where there is none, elements by index, linear maps along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, shape_of
from mrt.symbol import Array


def with_batch(node: Node, data: Expression, spatial: int, make: Callable[[Expression], Expression]) -> Expression:
    """What `make` gives of data with a batch axis, where PyTorch takes data without one."""
    if len(shape_of(data)) == spatial + 2:
        return make(data)
    batch = node.emit(relax.op.expand_dims(data, 0))
    return relax.op.squeeze(node.emit(make(batch)), [0])


def part(data: Expression, axis: int, begin: int, end: int) -> Expression:
    """The elements from begin to end of an axis counted from the front."""
    return relax.op.strided_slice(data, [axis], [begin], [end])


def emitted(node: Node, data: Expression, shape: tuple[int, ...]) -> Expression:
    """`data` in a shape, as a variable."""
    return data if shape_of(data) == shape else node.emit(relax.op.reshape(data, shape))


def reshaped(data: Expression, shape: tuple[int, ...]) -> Expression:
    return data if shape_of(data) == shape else relax.op.reshape(data, shape)


def taken(data: Expression, axis: int, indices: Sequence[int] | Array) -> Expression:
    """The elements at constant indices along an axis counted from the front."""
    return relax.op.take(data, constant(indices, "int64"), axis)


def mapped(node: Node, data: Expression, axis: int, matrix: Array) -> Expression:
    """Y[..., i, ...] = sum over j of matrix[i, j] X[..., j, ...] along an axis counted from the front.

    A product over the last axis, with which `axis` is exchanged before and after.
    """
    order = [*range(len(shape_of(data)))]
    order[axis], order[-1] = order[-1], order[axis]
    is_last = axis == len(order) - 1
    last = data if is_last else node.emit(relax.op.permute_dims(data, order))
    product = node.emit(relax.op.matmul(last, constant(matrix.T)))
    return product if is_last else node.emit(relax.op.permute_dims(product, order))
