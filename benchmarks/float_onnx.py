"""Float networks as ONNX models, up to their logits: what all tools of a comparison read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import helper, numpy_helper

import mrt
from mrt.frontend.formats import format_of
from mrt.symbol import Graph, Operator, Symbol
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import BatchNorm
from mrt.symbol.operators.pooling import Pooling

OPSET, IR_VERSION = 17, 8
Node = tuple[str, dict[str, Any]]
"""The operator of a node and its attributes."""


def read_float(path: Path, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """The model of an ONNX file for one sample, or that of another format whose operators are all in `NODES`."""
    if format_of(path).name == "onnx":
        return for_one_sample(onnx.load(path))
    return written(mrt.load_model(path, shapes=shapes))


def for_one_sample(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a dynamic batch fixed to 1."""
    given = {parameter.name for parameter in model.graph.initializer}
    for value in model.graph.input:
        axes = value.type.tensor_type.shape.dim
        if value.name not in given and axes and not axes[0].dim_value:
            axes[0].dim_value = 1
    return model


def logits_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the softmaxes that its outputs end in: SQNR is of what stands before them."""
    graph = model.graph
    while ends := [node for node in graph.node if node.op_type == "Softmax" and _is_output(graph, node.output[0])]:
        for node in ends:
            (value,) = (value for value in graph.output if value.name == node.output[0])
            value.name = node.input[0]
            graph.node.remove(node)
    return model


def _is_output(graph: onnx.GraphProto, name: str) -> bool:
    return any(value.name == name for value in graph.output) and all(name not in node.input for node in graph.node)


# From a graph


def _convolution(op: Convolution, symbol: Symbol) -> Node:
    stride, dilate, pad = op.window(len(op.kernel))
    window = {"strides": stride, "dilations": dilate, "pads": (*pad, *pad), "kernel_shape": op.kernel}
    return "Conv", {**window, "group": op.num_group}


def _pooling(op: Pooling, symbol: Symbol) -> Node:
    if not (op.global_pool and op.pool_type == "avg"):
        raise mrt.MRTError(f"{symbol.name} (Pooling): {op} was found; a global average is needed to write it as ONNX")
    return "GlobalAveragePool", {}


def _batch_norm(op: BatchNorm, symbol: Symbol) -> Node:
    if op.fix_gamma or op.axis != 1:
        raise mrt.MRTError(f"{symbol.name} (BatchNorm): {op} was found; a learned gamma along axis 1 is needed")
    return "BatchNormalization", {"epsilon": op.eps}


NODES: dict[type[Operator], Callable[[Any, Symbol], Node]] = {
    Convolution: _convolution,
    BatchNorm: _batch_norm,
    Relu: lambda op, symbol: ("Relu", {}),
    ElemwiseAdd: lambda op, symbol: ("Add", {}),
    Pooling: _pooling,
    FullyConnected: lambda op, symbol: ("Gemm", {"transB": 1}),
}
"""What the residual networks of MXNet consist of."""


def written(graph: Graph) -> onnx.ModelProto:
    """A float graph as an ONNX model; MRTError for an operator that is not in `NODES`."""
    nodes = [node for symbol in graph.operators for node in _nodes(symbol)]
    inputs, outputs = (
        [helper.make_tensor_value_info(symbol.name, onnx.TensorProto.FLOAT, symbol.shape) for symbol in symbols]
        for symbols in (graph.inputs, graph.outputs)
    )
    parameters = [numpy_helper.from_array(value, name) for name, value in graph.parameters.items()]
    made = helper.make_graph(nodes, "network", inputs, outputs, parameters)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model


def _nodes(symbol: Symbol) -> list[onnx.NodeProto]:
    write = NODES.get(type(symbol.operator)) if symbol.operator else None
    if write is None:
        raise mrt.MRTError(f"{symbol.name} ({symbol.op}): cannot be written as ONNX for other tools; give an ONNX file")
    name, attributes = write(symbol.operator, symbol)
    inputs = [source.name for source in symbol.inputs]
    if name != "Gemm":
        return [helper.make_node(name, inputs, [symbol.name], symbol.name, **attributes)]
    flat = f"{symbol.name}_flat"
    return [
        helper.make_node("Flatten", inputs[:1], [flat], flat),
        helper.make_node(name, [flat, *inputs[1:]], [symbol.name], symbol.name, **attributes),
    ]
