"""Reading a TFLite model into a float Graph: operator by operator, in the file's order, through the converters."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.channels_first import channels_first
from mrt.frontend.folding import folded
from mrt.frontend.node import Value, ValueScope
from mrt.frontend.refusals import check_batch, check_static, list_uncovered
from mrt.frontend.tflite import converters as _converters
from mrt.frontend.tflite.files import StoredModel, StoredOperator, read_model
from mrt.frontend.tflite.node import NOTHING, Node, find_converter
from mrt.frontend.tvm.bias import merge_biases
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType

del _converters

_NAMES_SHOWN = 3


def read_graph(model: str | os.PathLike[str] | bytes, batch: int) -> Graph:
    """What from_tflite gives."""
    check_batch(batch)
    return merge_biases(channels_first(_Reader(read_model(model)).read(batch)))


class _Reader:
    """Reads one model: the values of its tensors by their numbers."""

    def __init__(self, model: StoredModel) -> None:
        self._model = model
        names = GraphBuilder()
        self._names = [names.unique(tensor.name) for tensor in model.tensors]
        self._scope = ValueScope(self._names)
        self._values: dict[int, Value] = {}

    def read(self, batch: int) -> Graph:
        operators = self._needed()
        self._check_floats(operators)
        self._check_covered(operators)
        self._read_inputs(batch)
        for operator in operators:
            self._read_operator(operator)
        outputs = [self._scope.symbol(self._value(index), self._names[index]) for index in self._model.outputs]
        return self._scope.builder.graph(outputs)

    def _needed(self) -> list[StoredOperator]:
        """The operators that an output needs, in order."""
        wanted, found = set(self._model.outputs), []
        for operator in reversed(self._model.operators):
            if not wanted.isdisjoint(operator.outputs):
                found.append(operator)
                wanted.update(operator.inputs)
        return found[::-1]

    def _check_floats(self, operators: Sequence[StoredOperator]) -> None:
        """Refuses a model that computes in integers already."""
        model = self._model
        computed = [*model.inputs, *(index for operator in operators for index in operator.outputs)]
        quantized = [model.tensors[index] for index in computed if model.tensors[index].is_quantized]
        if quantized:
            shown = ", ".join(f"{tensor.name} ({tensor.kind})" for tensor in quantized[:_NAMES_SHOWN])
            raise UnsupportedOperatorError(
                f"{model.title} is quantized already: {len(quantized)} of its {len(computed)} computed tensors are "
                f"integers with scales ({shown}{', …' if len(quantized) > _NAMES_SHOWN else ''}); convert the float "
                "model without quantization, or with that of weights only"
            )

    def _check_covered(self, operators: Sequence[StoredOperator]) -> None:
        uncovered: dict[str, list[str]] = {}
        for operator in operators:
            if find_converter(operator.kind) is None:
                uncovered.setdefault(operator.kind, []).append(self._names[operator.outputs[0]])
        if uncovered:
            advice = "replace them before converting, or cut the model before them"
            raise UnsupportedOperatorError(list_uncovered(self._model.title, uncovered, advice))

    def _read_inputs(self, batch: int) -> None:
        tensors = [self._model.tensors[index] for index in self._model.inputs]
        shapes = [
            [batch if axis == 0 and size is None else size for axis, size in enumerate(tensor.sizes)]
            for tensor in tensors
        ]
        names = [self._names[index] for index in self._model.inputs]
        check_static(list(zip(names, shapes, strict=True)), "when converting")
        for index, tensor, sizes in zip(self._model.inputs, tensors, shapes, strict=True):
            shape = tuple(size for size in sizes if size is not None)
            if 0 in shape:
                raise GraphError(f"input {self._names[index]} has shape {shape}; positive sizes are needed")
            self._define(index, self._scope.graph_input(self._names[index], TensorType(shape, tensor.dtype())))

    def _read_operator(self, operator: StoredOperator) -> None:
        """Defines the outputs: arrays where no input depends on the data, else what the operator's converter makes."""
        inputs = tuple(NOTHING if index < 0 else self._value(index, operator) for index in operator.inputs)
        outputs = tuple(self._model.tensors[index] for index in operator.outputs)
        node = Node(self._names[operator.outputs[0]], self._scope, inputs, operator, outputs)
        convert = find_converter(operator.kind)
        if convert is None:
            raise node.unsupported("the operator", "not covered", "another one")
        is_known = not any(isinstance(value, Symbol) for value in inputs)
        result = folded(node, convert) if is_known else convert(node)
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(outputs):
            raise GraphError(f"{node.label}: gives {len(results)} tensors; the file says {len(outputs)}")
        for index, value in zip(operator.outputs, results, strict=True):
            self._check_shape(index, value)
            self._define(index, value)

    def _define(self, index: int, value: Value) -> None:
        if index in self._values:
            raise GraphError(f"tensor {self._names[index]} is given twice; the model is malformed")
        if isinstance(value, np.ndarray):
            self._scope.entitle(value, self._names[index])
        self._values[index] = value

    def _value(self, index: int, reader: StoredOperator | None = None) -> Value:
        """The value of a tensor; GraphError where neither an earlier operator nor the file gives it."""
        if index not in self._values:
            constant = self._model.constant(index)
            if constant is None:
                who = f"{self._names[reader.outputs[0]]} ({reader.kind})" if reader is not None else "the output"
                raise GraphError(
                    f"{who}: reads {self._names[index]}, which no input, buffer or earlier operator gives; "
                    "the model is malformed"
                )
            self._define(index, constant)
        return self._values[index]

    def _check_shape(self, index: int, value: Value) -> None:
        """GraphError where what was read has not the shape that the file says; a tensor without one says nothing."""
        if isinstance(value, tuple):
            raise GraphError(f"{self._names[index]} is no tensor")
        sizes = self._model.tensors[index].sizes
        fits = len(sizes) == len(value.shape) and all(
            size in (None, found) for size, found in zip(sizes, value.shape, strict=True)
        )
        if sizes and not fits:
            told = tuple("?" if size is None else size for size in sizes)
            raise GraphError(f"{self._names[index]} has shape {tuple(value.shape)}; the file says {told}")
