"""Reading an OpenVINO model into a float Graph: operator by operator, in topological order, through the converters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import openvino

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.openvino.compressed import compressed_constant, moved_constant
from mrt.frontend.openvino.files import (
    array_of,
    dtype_of,
    element_type,
    read_model,
    reason_of,
    static_shape,
    tensor_of,
)
from mrt.frontend.openvino.node import Node, find_converter
from mrt.frontend.shared.converting import converted
from mrt.frontend.shared.folding import MOST_ELEMENTS
from mrt.frontend.shared.inputs import ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.shared.node import Value, ValueScope
from mrt.frontend.shared.quantized import QuantizedConstant, fake_quantized_constant
from mrt.frontend.shared.refusals import check_size, list_uncovered
from mrt.frontend.shared.split import FileOperator, read_with_split
from mrt.frontend.tvm.bias import merge_biases
from mrt.symbol import Array, Graph, GraphBuilder, TensorType

_ALWAYS_KNOWN = frozenset({"ShapeOf"})
"""Operators whose value is known whatever their input is, since every shape is."""

_BY_READER = frozenset({"Parameter", "Constant", "Result"}) | _ALWAYS_KNOWN

_Key = tuple[int, int]
"""An output: the number of its operator, and its own."""


def read_graph(model: str | os.PathLike[str] | openvino.Model, options: ReadOptions) -> Graph:
    """What from_openvino gives."""
    loaded, title = read_model(model)
    whole = _Reader(loaded, title, options)
    if not whole.results:
        raise GraphError(f"{title} has no outputs; convert it with at least one")
    return read_with_split(
        lambda outputs: (whole if outputs is whole.results else whole.again()).read(outputs),
        whole.described,
        whole.results,
        options.split,
    )


class _Reader:
    """Reads one model: the values of its operators' outputs."""

    def __init__(self, model: openvino.Model, title: str, options: ReadOptions) -> None:
        self._title = title
        self._model = model
        self._fix_inputs(options)
        self._operators: list[openvino.Node] = list(model.get_ordered_ops())
        self.results: list[_Key] = [_key(result.input_value(0)) for result in model.get_results()]
        names = GraphBuilder()
        # Inputs are called as their tensors, by which they are fed.
        self._names = {
            _id(operator): names.unique(_name(operator))
            for operator in sorted(self._operators, key=lambda item: item.get_type_name() != "Parameter")
        }
        self._scope = ValueScope(self._names.values())
        self._values: dict[_Key, Value] = {}
        # What does not depend on the data, as OpenVINO holds it.
        self._tensors: dict[_Key, openvino.Tensor] = {}
        self._quantized: dict[_Key, QuantizedConstant] = {}

    def again(self) -> _Reader:
        """A reader of the same model that has read nothing yet; its inputs are fixed."""
        return _Reader(self._model, self._title, ReadOptions())

    @property
    def described(self) -> list[FileOperator]:
        return [
            FileOperator(
                self._names[_id(operator)],
                operator.get_type_name(),
                [_key(port.get_source_output()) for port in operator.inputs()],
                [(_id(operator), int(port.get_index())) for port in operator.outputs()],
            )
            for operator in self._operators
            if operator.get_type_name() not in ("Parameter", "Constant", "Result")
        ]

    def read(self, outputs: Sequence[_Key]) -> Graph:
        operators = self._needed(outputs)
        self._check_covered(operators)
        for parameter in self._model.get_parameters():
            self._read_input(parameter)
        for operator in operators:
            kind = operator.get_type_name()
            if kind == "Constant":
                self._tensors[_id(operator), 0] = tensor_of(operator)
            elif kind not in ("Parameter", "Result"):
                self._read_operator(operator)
        named = [(self._names[key[0]], self._value(key)) for key in outputs]
        graph = merge_biases(self._scope.builder.graph([self._scope.symbol(value, name) for name, value in named]))
        ports = {(_id(operator), int(port.get_index())): port for operator in operators for port in operator.outputs()}
        titles: dict[str, tuple[str, ...]] = {}
        for symbol, key in zip(graph.outputs, outputs, strict=True):
            # Those are OpenVINO's own, with a number that another run changes.
            names = sorted(name for name in ports[key].get_names() if not name.startswith("Result_"))
            titles[symbol.name] = (*titles.get(symbol.name, ()), *(names[:1] or [symbol.name]))
        return replace(graph, output_names=titles)

    def _needed(self, outputs: Sequence[_Key]) -> list[openvino.Node]:
        """The operators that these outputs need, in order."""
        needed, found = {number for number, _ in outputs}, []
        for operator in reversed(self._operators):
            if _id(operator) in needed:
                found.append(operator)
                needed.update(_id(port.get_source_output().get_node()) for port in operator.inputs())
        return found[::-1]

    def _fix_inputs(self, options: ReadOptions) -> None:
        """Fixes every size of an input, and makes those that have a value constants of the model."""
        parameters = self._model.get_parameters()
        fixed = fixed_inputs([_stated_input(parameter) for parameter in parameters], options)
        shapes = {index: openvino.PartialShape(list(item.shape)) for index, item in enumerate(fixed)}
        try:
            if any(parameter.get_output_partial_shape(0).is_dynamic for parameter in parameters):
                self._model.reshape(shapes)
            for parameter, item in zip(parameters, fixed, strict=True):
                if item.value is not None:
                    self._replace(parameter, item.value)
            self._model.validate_nodes_and_infer_types()
        except RuntimeError as error:
            found = ", ".join(f"{item.name}: {item.shape}" for item in fixed)
            raise GraphError(f"{self._title} does not take inputs of the shapes {found}: {reason_of(error)}") from None

    def _replace(self, parameter: openvino.Node, value: Array) -> None:
        constant = openvino.op.Constant(
            parameter.get_output_element_type(0), openvino.Shape(value.shape), value.reshape(-1)
        )
        constant.set_friendly_name(parameter.get_friendly_name())
        for reader in parameter.output(0).get_target_inputs():
            reader.replace_source_output(constant.output(0))
        self._model.remove_parameter(parameter)

    def _check_covered(self, operators: Sequence[openvino.Node]) -> None:
        """Raises UnsupportedOperatorError listing every operator that depends on the data and is not covered."""
        known: set[int] = set()
        uncovered: dict[str, list[str]] = {}
        for operator in operators:
            kind = operator.get_type_name()
            sources = [_id(port.get_source_output().get_node()) for port in operator.inputs()]
            if kind == "Constant" or kind in _ALWAYS_KNOWN or (sources and known.issuperset(sources)):
                known.add(_id(operator))
            elif kind not in _BY_READER and find_converter(kind) is None:
                version = operator.get_type_info().version_id
                uncovered.setdefault(f"{kind} ({version})", []).append(self._names[_id(operator)])
        if uncovered:
            advice = "replace them before converting, or cut the model before them"
            raise UnsupportedOperatorError(list_uncovered(self._title, uncovered, advice, self.described, self.results))

    def _read_input(self, parameter: openvino.Node) -> None:
        name = self._names[_id(parameter)]
        shape = static_shape(parameter.output(0), f"input {name}")
        if 0 in shape:
            raise GraphError(f"input {name} has shape {shape}; positive sizes are needed")
        type = TensorType(shape, dtype_of(parameter.output(0), f"input {name}"))
        self._define(parameter, 0, self._scope.graph_input(name, type))

    def _read_operator(self, operator: openvino.Node) -> None:
        """Defines the outputs: known ones where no input depends on the data, else what the converter makes."""
        kind, name = operator.get_type_name(), self._names[_id(operator)]
        label = f"{name} ({kind})"
        if kind in _ALWAYS_KNOWN:
            self._define_shape(operator, label)
            return
        sources = [_key(port.get_source_output()) for port in operator.inputs()]
        if all(key in self._tensors for key in sources):
            self._fold(operator, label, sources)
            return
        used = [port.get_index() for port in operator.outputs() if port.get_target_inputs()]
        node = Node(
            name,
            self._scope,
            tuple(map(self._value, sources)),
            kind,
            operator.get_attributes(),
            tuple(dtype_of(operator.output(port), label) for port in used),
            tuple(element_type(port.get_source_output()) for port in operator.inputs()),
        )
        convert = find_converter(kind)
        if convert is None:
            raise node.unsupported("the operator", "not covered", "another one")
        result = converted(node, convert)
        results = result if isinstance(result, tuple) else (result,)
        for port in used:
            if port >= len(results):
                raise node.unsupported(f"output {port}", "used", "a model that reads the first one only")
            value, shape = results[port], static_shape(operator.output(port), label)
            if isinstance(value, tuple) or tuple(value.shape) != shape:
                found = "no tensor" if isinstance(value, tuple) else f"a tensor of shape {tuple(value.shape)}"
                raise GraphError(f"{label}: gives {found}; the model says {shape}")
            self._define(operator, port, value)

    def _define_shape(self, operator: openvino.Node, label: str) -> None:
        shape = static_shape(operator.input_value(0), label)
        dtype = np.int32 if element_type(operator.output(0)) == "i32" else np.int64
        self._tensors[_id(operator), 0] = openvino.Tensor(np.array(shape, dtype))

    def _fold(self, operator: openvino.Node, label: str, sources: Sequence[_Key]) -> None:
        """Has OpenVINO compute an operator on constants; what it gives may be weights that are stored quantized."""
        shapes = [static_shape(output, label) for output in operator.outputs()]
        for shape in shapes:
            check_size(label, shape, MOST_ELEMENTS)
        try:
            results = [
                openvino.Tensor(output.get_element_type(), openvino.Shape(shape))
                for output, shape in zip(operator.outputs(), shapes, strict=True)
            ]
            done = operator.evaluate(results, [self._tensors[key] for key in sources])
        except RuntimeError as error:
            raise GraphError(f"{label}: cannot be computed on its constant inputs: {reason_of(error)}") from None
        if not done:
            raise UnsupportedOperatorError(f"{label}: cannot be computed on its constant inputs; fold it before")
        for port, tensor in enumerate(results):
            self._tensors[_id(operator), port] = tensor
        constant = self._quantized_form(operator, sources)
        if constant is not None:
            self._quantized[_id(operator), 0] = constant

    def _quantized_form(self, operator: openvino.Node, sources: Sequence[_Key]) -> QuantizedConstant | None:
        if operator.get_type_name() == "FakeQuantize":
            data, *limits = (array_of(self._tensors[key], "weight") for key in sources)
            return fake_quantized_constant(data, tuple(limits), int(operator.get_attributes()["levels"]))
        return compressed_constant(operator) or moved_constant(operator, self._quantized.get(sources[0]))

    def _define(self, operator: openvino.Node, port: int, value: Value) -> None:
        if isinstance(value, np.ndarray):
            self._scope.entitle(value, self._names[_id(operator)])
        self._values[_id(operator), port] = value

    def _value(self, key: _Key) -> Value:
        """The value of an output; a known tensor becomes an array once a converter reads it."""
        if key not in self._values:
            name = self._names[key[0]]
            value = array_of(self._tensors[key], f"constant {name}")
            self._scope.entitle(value, name)
            self._scope.keep_quantized(value, self._quantized.get(key))
            self._values[key] = value
        return self._values[key]


def _id(operator: openvino.Node) -> int:
    return int(operator.get_instance_id())


def _stated_input(parameter: openvino.Node) -> StatedInput:
    shape = parameter.get_output_partial_shape(0)
    sizes = None if shape.rank.is_dynamic else tuple(None if n.is_dynamic else int(n.get_length()) for n in shape)
    kind = element_type(parameter.output(0))
    return StatedInput(_name(parameter), sizes, _VALUE_DTYPES.get(kind) or dtype_of(parameter.output(0), "input"))


_VALUE_DTYPES = {"f64": "float64"}


def _key(output: openvino.Output) -> _Key:
    return _id(output.get_node()), int(output.get_index())


def _name(operator: openvino.Node) -> str:
    """What the model calls an operator; GraphError where that is no text on one line."""
    name = str(operator.get_friendly_name())
    if not name.isprintable():
        raise GraphError(f"an operator is called {name[:_SHOWN]!r}, which is no text on one line; convert it anew")
    return name


_SHOWN = 80
"""How much of a name is shown."""
