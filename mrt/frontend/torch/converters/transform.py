"""Operators that move values and change none."""

from __future__ import annotations

from tvm import relax

from mrt.frontend.torch.node import Expression, Node, converter, importers_own, shape_of

importers_own("flip.default", "permute.default", "repeat.default", "roll.default")


@converter("view.default", "_unsafe_view.default")
def view(node: Node) -> Expression:
    data = node.tensor("self")
    return data if shape_of(data) == node.shape else relax.op.reshape(data, node.shape)


@converter("unsqueeze.default")
def unsqueeze(node: Node) -> Expression:
    return relax.op.expand_dims(node.tensor("self"), node.integer("dim") % len(node.shape))


@converter("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(node: Node) -> Expression:
    """Takes axes of size 1 away, those named or all."""
    data = node.tensor("self")
    shape = shape_of(data)
    named = node.integers("dim") if "dim" in node.arguments else range(len(shape))
    axes = [axis % len(shape) for axis in named if shape[axis] == 1]
    return relax.op.squeeze(data, axes) if axes else data


@converter("expand.default")
def expand(node: Node) -> Expression:
    data = node.tensor("self")
    return data if shape_of(data) == node.shape else relax.op.broadcast_to(data, node.shape)


@converter("copy.default")
def copy(node: Node) -> Expression:
    """The source in the shape and dtype of the data that it is written over."""
    source = node.cast(node.tensor("src"), node.dtype)
    return source if shape_of(source) == node.shape else relax.op.broadcast_to(source, node.shape)


@converter("cat.default")
def concat(node: Node) -> Expression:
    """In the dtype of the result; vectors of length 0 are left out."""
    parts = [node.cast(part, node.dtype) for part in node.tensors("tensors") if shape_of(part) != (0,)]
    return relax.op.concat(parts, node.integer("dim") % len(node.shape)) if len(parts) > 1 else parts[0]
