"""Parts of a tensor and borders around it: strided_slice, split, take, pad."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared import picking
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.slicing import sliced, slices_of
from mrt.frontend.tvm import slicing
from mrt.symbol import Symbol

converter("take")(slicing.take)


@converter("gather_elements")
def gather_elements(node: Node) -> Symbol:
    return picking.gathered_elements(node, node.integer("axis"))


@converter("gather_nd")
def gather_nd(node: Node) -> Symbol:
    return picking.gathered_rows(node, node.integer("batch_dims"))


@converter("strided_slice")
def strided_slice(node: Node) -> Symbol:
    """Begins, ends and strides of the named axes, as NumPy's; strides of 1 where none are given."""
    axes, begins, ends = (node.known_integers(i, role) for i, role in enumerate(("axes", "begin", "end"), start=1))
    strides = node.known_integers(4, "strides") if len(node.inputs) > 4 else (1,) * len(axes)
    data = node.symbol(0)
    return sliced(node, data, slices_of(node, data.type.rank, axes, begins, ends, strides))


@converter("dynamic_strided_slice")
def dynamic_strided_slice(node: Node) -> Symbol:
    """Begins, ends and strides of all axes."""
    begins, ends, strides = (
        node.known_integers(i, role) for i, role in enumerate(("begin", "end", "strides"), start=1)
    )
    data = node.symbol(0)
    return sliced(node, data, slices_of(node, data.type.rank, tuple(range(len(begins))), begins, ends, strides))


@converter("split")
def split(node: Node) -> Value:
    """A number of parts gives equal ones, the last smaller; else the places of the cuts."""
    given = node.call.attrs.indices_or_sections
    try:
        cuts = [int(cut) for cut in given]
    except TypeError:
        shape = node.shape(0)
        chunk = -(-shape[node.axis(node.integer("axis"), len(shape))] // int(given))
        cuts = [chunk * place for place in range(1, int(given))]
    return slicing.split(node, cuts)


@converter("nn.pad")
def pad(node: Node) -> Symbol:
    return slicing.pad(node, node.sizes("pad_width"), lambda: node.number("pad_value"))
