"""Reading a TFLite model into a float Graph: operator by operator, in the file's order, through the converters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.shared.channels_first import channels_first
from mrt.frontend.shared.folding import folded
from mrt.frontend.shared.inputs import ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.shared.node import Value, ValueScope
from mrt.frontend.shared.quantized import STORAGE
from mrt.frontend.shared.refusals import MAX_MADE, check_size, list_uncovered
from mrt.frontend.shared.split import FileOperator, read_with_split
from mrt.frontend.tflite.branches import without_branches
from mrt.frontend.tflite.files import StoredModel, StoredOperator, Tensor
from mrt.frontend.tflite.layers import as_computed
from mrt.frontend.tflite.node import NOTHING, Node, find_converter
from mrt.frontend.tflite.source import read_model
from mrt.frontend.tflite.variables import Variable, with_variables, without_variables
from mrt.frontend.tvm.bias import merge_biases
from mrt.symbol import Array, Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.integer import Dequantize, Quantize

ROUNDED = ("INT8", "UINT8", "INT16")
"""The integers that a quantized network computes."""


def read_graph(model: str | os.PathLike[str] | bytes, options: ReadOptions) -> Graph:
    """What from_tflite gives."""
    stored, variables = without_variables(without_branches(read_model(model)))
    whole = _Reader(stored, stored, variables)
    return read_with_split(
        lambda outputs: _Reader(replace(stored, outputs=tuple(outputs)), stored, variables).read(options),
        whole.described,
        stored.outputs,
        options.split,
    )


class _Reader:
    """Reads one model: the values of its tensors by their numbers."""

    def __init__(self, model: StoredModel, whole: StoredModel, variables: Sequence[Variable]) -> None:
        """`whole`: the model with all its outputs. variables: what its last inputs and outputs are."""
        self._model, self._whole, self._variables = model, whole, variables
        names = GraphBuilder()
        self._names = [names.unique(tensor.name) for tensor in model.tensors]
        self._scope = ValueScope(self._names)
        self._values: dict[int, Value] = {}
        self._layer_constants: dict[tuple[int, tuple[float, ...]], Value] = {}
        # Of a network that computes in integers the weights stay integers; of another they are what they stand for.
        self._is_integer = False

    def read(self, options: ReadOptions) -> Graph:
        operators = self._needed(self._model)
        self._is_integer = self._computes_integers(operators)
        self._check_covered(operators)
        self._read_inputs(options)
        for operator in operators:
            self._read_operator(operator)
        outputs = [self._scope.symbol(self._value(index), self._names[index]) for index in self._model.outputs]
        graph = merge_biases(channels_first(self._scope.builder.graph(outputs)))
        return with_variables(self._titled(graph), self._variables, dict(enumerate(self._names)), self._model.outputs)

    def _titled(self, graph: Graph) -> Graph:
        """The graph with the names that the file's signature gives to outputs."""
        titles: dict[str, tuple[str, ...]] = {}
        for symbol, tensor in zip(graph.outputs, self._model.outputs, strict=True):
            titles[symbol.name] = (*titles.get(symbol.name, ()), self._model.signature.get(tensor, symbol.name))
        return replace(graph, output_names=titles) if self._model.signature else graph

    @property
    def described(self) -> list[FileOperator]:
        """The operators that an output of the whole model needs."""
        return [
            FileOperator(self._names[operator.outputs[0]], operator.kind, operator.inputs, operator.outputs)
            for operator in self._needed(self._whole)
        ]

    def _needed(self, model: StoredModel) -> list[StoredOperator]:
        """The operators that an output needs, in order."""
        wanted, found = set(model.outputs), []
        for operator in reversed(self._model.operators):
            if not wanted.isdisjoint(operator.outputs):
                found.append(operator)
                wanted.update(operator.inputs)
        return found[::-1]

    def _computes_integers(self, operators: Sequence[StoredOperator]) -> bool:
        """Whether the network is quantized; UnsupportedOperatorError where it is so in a form that is not read."""
        tensors = self._model.tensors
        computed = [*self._model.inputs, *(index for operator in operators for index in operator.outputs)]
        quantized = [tensors[index] for index in computed if tensors[index].is_quantized]
        for tensor in quantized:
            if tensor.kind not in ROUNDED or len(tensor.scales) != 1 or len(tensor.zero_points) > 1:
                raise UnsupportedOperatorError(
                    f"{self._model.title}: tensor {tensor.name} is computed as {tensor.kind} with {len(tensor.scales)} "
                    f"scales; one of {', '.join(ROUNDED)} with one scale is needed"
                )
        return bool(quantized)

    def _check_covered(self, operators: Sequence[StoredOperator]) -> None:
        uncovered: dict[str, list[str]] = {}
        for operator in operators:
            if find_converter(operator.kind) is None:
                uncovered.setdefault(operator.kind, []).append(self._names[operator.outputs[0]])
        if uncovered:
            advice = "replace them before converting, or cut the model before them"
            raise UnsupportedOperatorError(
                list_uncovered(self._model.title, uncovered, advice, self.described, self._whole.outputs)
            )

    def _read_inputs(self, options: ReadOptions) -> None:
        tensors = [self._model.tensors[index] for index in self._model.inputs]
        stated = [
            StatedInput(self._names[index], tensor.sizes, tensor.dtype())
            for index, tensor in zip(self._model.inputs, tensors, strict=True)
        ]
        for index, tensor, fixed in zip(self._model.inputs, tensors, fixed_inputs(stated, options), strict=True):
            if 0 in fixed.shape:
                raise GraphError(f"input {fixed.name} has shape {fixed.shape}; positive sizes are needed")
            if fixed.value is not None:
                self._define(index, _meant(tensor, fixed.value))
                continue
            if any(index == variable.read for variable in self._variables):
                # Real numbers, whatever the file keeps them as: a state has a scale of its own.
                state = self._scope.graph_input(fixed.name, TensorType(fixed.shape, "float32"))
                self._define(index, self._rounded(index, state))
                continue
            given = self._scope.graph_input(fixed.name, TensorType(fixed.shape, tensor.dtype()))
            self._define(index, self._real(index, given) if tensor.is_quantized else given)

    def _read_operator(self, operator: StoredOperator) -> None:
        """Defines the outputs: arrays where no input depends on the data, else what the operator's converter makes."""
        inputs = tuple(
            NOTHING if index < 0 else self._input(operator, place) for place, index in enumerate(operator.inputs)
        )
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
            self._define(index, self._rounded(index, value))

    def _rounded(self, index: int, value: Value) -> Value:
        """A computed value as the real numbers that the tensor's integers can stand for, where it has such."""
        tensor = self._model.tensors[index]
        if not tensor.is_quantized or not isinstance(value, Symbol) or value.type.is_integer:
            return value
        dtype, low, high = STORAGE[tensor.dtype()]
        name = self._names[index]
        operator = Quantize(a_min=low, a_max=high, dtype=dtype)
        return self._real(index, self._scope.apply(operator, [value, *self._scale(index)], name, "integers"))

    def _real(self, index: int, integers: Symbol) -> Symbol:
        return self._scope.apply(Dequantize(), [integers, *self._scale(index)], self._names[index], "real")

    def _scale(self, index: int) -> tuple[Symbol, Symbol]:
        """Scale and zero point of a tensor; GraphError where the scale is no positive number."""
        tensor, name = self._model.tensors[index], self._names[index]
        scale, zero = tensor.scales[0], (tensor.zero_points or (0,))[0]
        limits = np.iinfo(tensor.dtype())
        if not (np.isfinite(scale) and scale > 0) or not limits.min <= zero <= limits.max:
            raise GraphError(
                f"{name} ({tensor.kind}): scale {scale}, zero point {zero}; a positive number and one of the tensor's "
                "integers are needed"
            )
        numbers = {"scale": np.array(scale, np.float32), "zero_point": np.array(zero, np.int32)}
        made = [
            self._scope.parameter_once(
                (index, role), number, lambda array: array, self._scope.made_up(f"{name}_{role}")
            )
            for role, number in numbers.items()
        ]
        return made[0], made[1]

    def _define(self, index: int, value: Value) -> None:
        if index in self._values:
            raise GraphError(f"tensor {self._names[index]} is given twice; the model is malformed")
        if isinstance(value, np.ndarray):
            self._scope.entitle(value, self._names[index])
        self._values[index] = value

    def _value(self, index: int, reader: StoredOperator | None = None) -> Value:
        """The value of a tensor; GraphError where neither an earlier operator nor the file gives it."""
        if index not in self._values:
            tensor = self._model.tensors[index]
            constant = _zeros(tensor) if tensor.is_variable else self._model.constant(tensor)
            if constant is None:
                who = f"{self._names[reader.outputs[0]]} ({reader.kind})" if reader is not None else "the output"
                raise GraphError(
                    f"{who}: reads {self._names[index]}, which no input, buffer or earlier operator gives; "
                    "the model is malformed"
                )
            self._define(index, constant)
            if self._is_integer:
                self._scope.keep_quantized(constant, self._model.quantized_constant(tensor))
        return self._values[index]

    def _input(self, operator: StoredOperator, place: int) -> Value:
        """An input of an operator; of a quantized layer the constants as its kernel takes them."""
        index = operator.inputs[place]
        stored = self._model.tensors[index]
        told = as_computed(self._model.tensors, operator, place) if self._is_integer else stored
        if told is stored or isinstance(self._values.get(index), Symbol):
            return self._value(index, operator)
        key = index, told.scales
        if key not in self._layer_constants:
            constant = self._model.constant(told)
            if constant is None:
                return self._value(index, operator)
            self._scope.entitle(constant, self._names[index])
            self._scope.keep_quantized(constant, self._model.quantized_constant(told))
            self._layer_constants[key] = constant
        return self._layer_constants[key]

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


def _zeros(tensor: Tensor) -> Array:
    """A state before the first run."""
    check_size(tensor.name, tensor.shape, MAX_MADE)
    return np.zeros(tensor.shape, tensor.dtype())


def _meant(tensor: Tensor, value: Array) -> Array:
    """What a value of an input's own dtype stands for: of quantized integers their real numbers."""
    if not tensor.is_quantized:
        return value
    zero = (tensor.zero_points or (0,))[0]
    return ((value.astype(np.float64) - zero) * tensor.scales[0]).astype(np.float32)
