"""An exported ONNX model for any number of samples: what two batch sizes give alike, the batch left open."""

from __future__ import annotations

import json
from collections.abc import Callable

import onnx
from onnx import numpy_helper

from mrt.errors import GraphError
from mrt.symbol import Array

ANY = "any"
"""The batch of a model that takes any number of samples."""
AXIS = "batch"
"""What the open axis is called."""
_SIZES = 7, 11
"""Two batches without a common factor, which no one mistakes for a channel count times a small number."""


def with_any_batch(export: Callable[[int], onnx.ModelProto]) -> onnx.ModelProto:
    """The model that `export` gives for each batch, its batch open: axis 0 of inputs and outputs is called "batch".

    Both exports must have the same nodes, attributes and constants. Where the target shape of a Reshape differs in one
    length, which is the batch times a number, that length becomes −1, which ONNX infers.
    Raises GraphError naming the first node that holds the batch in any other way, and what `export` raises.
    """
    model, other = (export(size) for size in _SIZES)
    constants, others = _constants(model), _constants(other)
    if len(model.graph.node) != len(other.graph.node):
        raise GraphError(f"the ONNX model of {_SIZES[0]} samples has other operators than that of {_SIZES[1]}; {_DO}")
    made: dict[str, Array] = {}
    for node, twin in zip(model.graph.node, other.graph.node, strict=True):
        same = node.op_type == twin.op_type and node.output == twin.output and node.attribute == twin.attribute
        if not same or len(node.input) != len(twin.input):
            raise GraphError(f"{node.name} ({node.op_type}) depends on the number of samples; {_DO}")
        for place, (name, known) in enumerate(zip(node.input, twin.input, strict=True)):
            if (name in constants) != (known in others) or (name not in constants and name != known):
                raise GraphError(f"{node.name} ({node.op_type}) depends on the number of samples; {_DO}")
            if name in constants and not _equal(constants[name], others[known]):
                node.input[place] = f"{name}/{AXIS}"
                made[node.input[place]] = _open_shape(node, constants[name], others[known])
    _replace_constants(model, made)
    for values in ("input", "output", "value_info"):
        for value, twin in zip(getattr(model.graph, values), getattr(other.graph, values), strict=True):
            _open_axes(value, twin)
    for entry in model.metadata_props:
        if entry.key in ("mrt.inputs", "mrt.outputs"):
            tensors = json.loads(entry.value)
            entry.value = json.dumps([{**tensor, "shape": [AXIS, *tensor["shape"][1:]]} for tensor in tensors])
    return model


_DO = "give the number of samples that the model is to take"


def _constants(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def _equal(first: Array, second: Array) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and bool((first == second).all())


def _open_shape(node: onnx.NodeProto, shape: Array, other: Array) -> Array:
    """The target of a Reshape whose one length follows the batch."""
    first, second = _SIZES
    is_shape = node.op_type == "Reshape" and shape.shape == other.shape
    differs = shape != other if is_shape else None
    if differs is None or differs.sum() != 1 or (shape[differs] * second != other[differs] * first).any():
        raise GraphError(f"{node.name} ({node.op_type}) holds a constant for each sample; {_DO}")
    found = shape.copy()
    if (shape == -1).any():
        raise GraphError(f"{node.name} ({node.op_type}) infers a length beside that of the batch; {_DO}")
    found[differs] = -1
    return found


def _open_axes(value: onnx.ValueInfoProto, twin: onnx.ValueInfoProto) -> None:
    """Calls the batch by its name; a length that only follows from it is left out."""
    sizes = value.type.tensor_type.shape.dim
    for size, other in zip(sizes, twin.type.tensor_type.shape.dim, strict=True):
        if (size.dim_value, other.dim_value) == _SIZES:
            size.dim_param = AXIS
        elif size.dim_value != other.dim_value:
            size.Clear()


def _replace_constants(model: onnx.ModelProto, made: dict[str, Array]) -> None:
    """Adds the constants that were made, and drops those that no node reads any more."""
    read = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in made.items())
