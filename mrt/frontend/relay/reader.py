"""Reading a Relay text into a float Graph: function calls inlined, operators through the converters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mrt.errors import DataError, GraphError, ModelFileError, UnsupportedOperatorError
from mrt.frontend.relay.interpreter import Interpreter
from mrt.frontend.relay.metadata import Metadata
from mrt.frontend.relay.node import Node, complete, find_converter
from mrt.frontend.relay.random_parameters import WEIGHTS, random_note, random_values
from mrt.frontend.relay.stated_types import check_type, check_value, graph_type, tensor_syntax, value_dtype
from mrt.frontend.relay.syntax import Call, Condition, Function, Module, OperatorName
from mrt.frontend.relay.tensors import parse_parameters, read_parameters
from mrt.frontend.relay.text import parse_module
from mrt.frontend.relay.tracing import Key, Trace, result_name, trace
from mrt.frontend.relay.values import Environment, Known, StandIn, as_tensor, as_value, flat, projected
from mrt.frontend.shared.channels_first import channels_first
from mrt.frontend.shared.inputs import ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.shared.node import ValueScope
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.shared.split import read_with_split
from mrt.frontend.tvm.bias import merge_biases
from mrt.frontend.tvm.folding import fold, is_foldable
from mrt.frontend.tvm.node import is_known
from mrt.messages import short
from mrt.symbol import Array, Graph, Symbol


def read_text(text: str, params: Mapping[str, Any] | bytes | None, options: ReadOptions) -> Graph:
    """The float graph of a Relay text; raises as from_relay does."""
    if not isinstance(text, str):
        raise ModelFileError(f"text is {short(text)}; a Relay text as mod.astext() gives it is needed")
    values = parse_parameters(params, "params") if isinstance(params, bytes) else params
    return _read(text, values, options, "the text")


def read_file(path: Path, options: ReadOptions) -> Graph:
    """The float graph of a file of Relay text; raises as read_relay_file does."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ModelFileError(f"{path} is no UTF-8 text; a Relay text as mod.astext() gives it is needed") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    parameters = path.with_suffix(".params")
    values = read_parameters(parameters) if parameters.is_file() else None
    return _read(text, values, options, str(path))


@dataclass(frozen=True)
class _Text:
    """A text that was parsed, its function that is read, and what that calls."""

    module: Module
    name: str
    metadata: Metadata
    trace: Trace


def _read(text: str, params: Mapping[str, Any] | None, options: ReadOptions, title: str) -> Graph:
    module = parse_module(text, title)
    name = _main(module, title)
    values = _values(module.functions[name], {} if params is None else params)
    metadata = Metadata(module.metadata, title)
    parsed = _Text(module, name, metadata, trace(module, name, metadata))
    drawn = random_values(parsed.trace, module.functions[name], values, options) if options.random_params else {}

    def read(outputs: Sequence[Any]) -> Graph:
        graph = _Reader(parsed, {**values, **drawn}, options, outputs).read()
        return merge_biases(channels_first(graph))

    graph = read_with_split(read, parsed.trace.described(), parsed.trace.outputs, options.split)
    return replace(graph, notes=(random_note(graph, drawn),)) if drawn else graph


def _main(module: Module, title: str) -> str:
    names = list(module.functions)
    if "main" in names:
        return "main"
    if len(names) == 1:
        return names[0]
    raise GraphError(f"{title} holds the functions {', '.join(names[:3])}; one called main is needed")


def _values(function: Function, params: Mapping[str, Any]) -> dict[str, Array]:
    """The values of the arguments by the names of the arguments."""
    if not isinstance(params, Mapping):
        raise DataError(f"params is of type {type(params).__name__}; a mapping of names to arrays is needed")
    printed = {f"v{key}": key for key in params if isinstance(key, str) and not key[:1].isalpha()}
    printed |= {key: key for key in params if isinstance(key, str)}
    names = {parameter.name for parameter in function.parameters}
    values = {name: _array(name, params[key]) for name, key in printed.items() if name in names}
    if params and not values:
        raise DataError(
            f"params names {', '.join(map(str, list(params)[:3]))}, which no argument is called: "
            f"the function has {', '.join(sorted(names)[:3])}"
        )
    return values


def _array(name: str, value: Any) -> Array:
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if array.dtype.kind not in "fiub":
        raise DataError(f"parameter {name} is given as {array.dtype}; an array of numbers is needed")
    return array


class _Reader(Interpreter):
    """Reads one module. An operator that is not covered is noted, and a stand-in takes its place until the end."""

    def __init__(self, text: _Text, values: Mapping[str, Array], options: ReadOptions, outputs: Sequence[Key]) -> None:
        """outputs: what is read in place of the result, which is that of the trace."""
        super().__init__(text.module, text.name, text.metadata)
        self._trace, self._values, self._options = text.trace, values, options
        self._outputs = None if outputs is text.trace.outputs else outputs
        self._needed = text.trace.needed(outputs)
        self._given: dict[int, Known] = {}
        self._scope = ValueScope(parameter.name for parameter in self._main.parameters)
        self._inputs: set[Symbol] = set()
        self._uncovered: dict[str, list[str]] = {}
        self._misused: list[str] = []
        self._missing: dict[str, str] = {}

    def read(self) -> Graph:
        environment = Environment()
        self._read_parameters(environment)
        try:
            result = self._run(self._body(self._main.body, environment))
        except GraphError as error:
            if self._uncovered or self._misused:
                raise self._refusal() from error
            raise
        if self._missing:
            found = ", ".join(f"{name} ({place})" for name, place in list(self._missing.items())[:5])
            more = ", …" if len(self._missing) > 5 else ""
            raise DataError(
                f"{len(self._missing)} arguments are weights and have no value: {found}{more}; "
                "give them as params, or as the .params file beside the text; to try the network with random ones: "
                "--random-params (or model.random_params: true, or random_params=True in Python)"
            )
        if self._uncovered or self._misused:
            raise self._refusal()
        if self._outputs is None:
            check_type(result, self._main.result_type, f"the result of @{self._name}")
        else:
            result = tuple(self._crossing(key) for key in self._outputs)
        outputs = list(flat(result))
        if not outputs:
            raise GraphError(f"@{self._name} gives an empty tuple; at least one tensor is needed")
        return self._scope.builder.graph(
            [self._scope.symbol(as_tensor(value), f"output{index}") for index, value in enumerate(outputs)]
        )

    def _crossing(self, key: Key) -> Known:
        number, *places = key
        value = self._given[int(number)]
        for place in places:
            value = projected(value, int(place))
        return value

    # Arguments

    def _read_parameters(self, environment: Environment) -> None:
        free = [parameter for parameter in self._main.parameters if parameter.name not in self._values]
        types = {parameter.name: tensor_syntax(parameter.name, parameter.type) for parameter in free}
        stated = [StatedInput(name, type.shape, value_dtype(type.dtype)) for name, type in types.items()]
        inputs = {fixed.name: fixed for fixed in fixed_inputs(stated, self._options)}
        for parameter in self._main.parameters:
            name = parameter.name
            fixed = inputs.get(name)
            if fixed is not None and fixed.value is None:
                symbol = self._scope.builder.input(name, graph_type(name, fixed.shape, types[name].dtype))
                self._inputs.add(symbol)
                environment.values[name] = symbol
                continue
            value = self._values[name] if fixed is None or fixed.value is None else fixed.value
            check_value(name, value, parameter.type)
            self._scope.entitle(value, name)
            environment.values[name] = value

    # Operators

    def _operator(self, number: int, operator: OperatorName, call: Call, inputs: Sequence[Known], name: str) -> Known:
        if number not in self._needed:
            return StandIn()
        value = self._given[number] = self._read_operator(number, operator, call, inputs, name)
        return value

    def _condition(self, number: int, condition: Condition, given: Sequence[Known]) -> Known:
        return self._refuse(number) if number in self._needed else StandIn()

    def _bound(self, name: str, value: Known) -> None:
        if isinstance(value, np.ndarray):
            self._scope.entitle(value, result_name("constant", name))

    def _read_operator(
        self, number: int, operator: OperatorName, call: Call, inputs: Sequence[Known], name: str
    ) -> Known:
        convert = find_converter(operator.name)
        if convert is None and not is_foldable(operator.name):
            return self._refuse(number)
        label = f"line {operator.line}, {operator.name}"
        attributes = complete(operator.name, call.attributes, len(inputs), label)
        if self._lacks_weights(operator, inputs) or any(isinstance(item, StandIn) for item in flat(tuple(inputs))):
            return StandIn()
        values = tuple(as_value(value, label) for value in inputs)
        title = self._scope.made_up(result_name(operator.name.rpartition(".")[2], name))
        node = Node(title, self._scope, values, operator.name, operator.line, attributes)
        try:
            if is_known(values):
                return fold(node, convert)
            if convert is not None:
                return convert(node)
        except UnsupportedOperatorError as error:
            self._misused.append(str(error))
            return StandIn()
        except GraphError as error:
            raise GraphError(str(error) if label in str(error) else f"{label}: {error}") from None
        except (ArithmeticError, IndexError, MemoryError, TypeError, ValueError) as error:
            # Attributes that are of the right kind and yet fit no shape.
            raise GraphError(f"{label}: its attributes do not fit its inputs: {error}") from None
        return self._refuse(number)

    def _lacks_weights(self, operator: OperatorName, inputs: Sequence[Known]) -> bool:
        """Whether a parameter of a trained operator is an argument without a value, which is noted."""
        places = WEIGHTS.get(operator.name, ())
        lacking = [
            value
            for place, value in enumerate(inputs)
            if place in places and isinstance(value, Symbol) and value in self._inputs
        ]
        for value in lacking:
            self._missing.setdefault(value.name, f"line {operator.line}, {operator.name}")
        return bool(lacking)

    def _refuse(self, number: int) -> StandIn:
        operator = self._trace.operators[number]
        self._uncovered.setdefault(operator.kind, []).append(operator.name)
        return StandIn()

    def _refusal(self) -> UnsupportedOperatorError:
        """The error that lists everything that was refused."""
        parts = list(self._misused)
        if self._uncovered:
            advice = "simplify the module before printing, or cut it before them"
            lines = {operator.name: f"{operator.name} in line {operator.line}" for operator in self._trace.operators}
            described = self._trace.described()
            title = f"function @{self._name}"
            parts.insert(0, list_uncovered(title, self._uncovered, advice, described, self._trace.outputs, shown=lines))
        return UnsupportedOperatorError("; ".join(parts))
