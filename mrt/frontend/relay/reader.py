"""Reading a Relay text into a float Graph: function calls inlined, operators through the converters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mrt.errors import DataError, GraphError, ModelFileError, UnsupportedOperatorError
from mrt.frontend.relay.metadata import Metadata
from mrt.frontend.relay.node import Node, complete, find_converter
from mrt.frontend.relay.stated_types import check_type, check_value, graph_type, tensor_syntax, value_dtype
from mrt.frontend.relay.syntax import (
    Binding,
    Body,
    Call,
    Condition,
    Expression,
    Function,
    GlobalName,
    Local,
    MetaReference,
    Module,
    OperatorName,
    Projection,
    Scalar,
    Tuple,
)
from mrt.frontend.relay.tensors import parse_parameters, read_parameters
from mrt.frontend.relay.text import parse_module
from mrt.frontend.relay.values import (
    Closure,
    Environment,
    Known,
    StandIn,
    Steps,
    as_tensor,
    as_value,
    flat,
    look_up,
    names_in,
)
from mrt.frontend.shared.channels_first import channels_first
from mrt.frontend.shared.inputs import ReadOptions, StatedInput, fixed_inputs
from mrt.frontend.shared.node import ValueScope
from mrt.frontend.shared.refusals import list_uncovered
from mrt.frontend.tvm.bias import merge_biases
from mrt.frontend.tvm.folding import fold, is_foldable
from mrt.frontend.tvm.node import is_known, item_of
from mrt.messages import short
from mrt.symbol import Array, Graph, Symbol

_MOST_CALLS = 20_000
"""How many function calls are inlined: functions that call each other may stand for any number."""

_WEIGHTS = {
    **{f"nn.conv{n}d{kind}": (1,) for n in (1, 2, 3) for kind in ("", "_transpose")},
    **dict.fromkeys(("nn.dense", "nn.bias_add", "nn.prelu", "qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense"), (1,)),
    **dict.fromkeys(("nn.layer_norm", "nn.instance_norm", "nn.group_norm"), (1, 2)),
    "nn.batch_norm": (1, 2, 3, 4),
}
"""Inputs that a trained network has parameters for: an argument there that has no value was forgotten."""


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


def _read(text: str, params: Mapping[str, Any] | None, options: ReadOptions, title: str) -> Graph:
    module = parse_module(text, title)
    name = _main(module, title)
    values = _values(module.functions[name], {} if params is None else params)
    graph = _Reader(module, name, Metadata(module.metadata, title), values, options).read()
    return merge_biases(channels_first(graph))


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


class _Reader:
    """Reads one module. An operator that is not covered is noted, and a stand-in takes its place until the end."""

    def __init__(
        self, module: Module, name: str, metadata: Metadata, values: Mapping[str, Array], options: ReadOptions
    ) -> None:
        self._module, self._name, self._metadata, self._values, self._options = module, name, metadata, values, options
        self._main = module.functions[name]
        self._scope = ValueScope(parameter.name for parameter in self._main.parameters)
        self._inputs: set[Symbol] = set()
        self._uncovered: dict[str, list[str]] = {}
        self._misused: list[str] = []
        self._missing: dict[str, str] = {}
        self._active: list[str] = [name]
        self._calls = 0
        self._live_bindings: dict[int, list[Binding]] = {}

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
                "give them as params, or as the .params file beside the text"
            )
        if self._uncovered or self._misused:
            raise self._refusal()
        outputs = list(flat(result))
        if not outputs:
            raise GraphError(f"@{self._name} gives an empty tuple; at least one tensor is needed")
        check_type(result, self._main.result_type, f"the result of @{self._name}")
        return self._scope.builder.graph(
            [self._scope.symbol(as_tensor(value), f"output{index}") for index, value in enumerate(outputs)]
        )

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

    # Expressions

    def _run(self, steps: Steps) -> Known:
        """The value that a computation comes to, with those that it needs on a list: nothing recurses."""
        stack, value = [steps], None
        while stack:
            try:
                stack.append(stack[-1].send(value))
                value = None
            except StopIteration as stop:
                stack.pop()
                value = stop.value
        return value  # type: ignore[return-value]

    def _body(self, body: Body, environment: Environment) -> Steps:
        for binding in self._live(body):
            value = yield self._expression(binding.value, environment, binding.name)
            if isinstance(value, np.ndarray):
                self._scope.entitle(value, _result_name("constant", binding.name))
            environment.values[binding.name] = value
        return (yield self._expression(body.result, environment, ""))

    def _live(self, body: Body) -> list[Binding]:
        """The bindings that the result needs, in order."""
        if id(body) not in self._live_bindings:
            needed, live = names_in(body.result), []
            for binding in reversed(body.bindings):
                if binding.name in needed:
                    live.append(binding)
                    needed |= names_in(binding.value)
            self._live_bindings[id(body)] = live[::-1]
        return self._live_bindings[id(body)]

    def _expression(self, expression: Expression, environment: Environment, name: str) -> Steps:
        """`name`: what the result is bound to, "" where it is a part of something."""
        if isinstance(expression, Call):
            return (yield self._call(expression, environment, name))
        if isinstance(expression, Tuple):
            items = []
            for item in expression.items:
                items.append((yield self._expression(item, environment, "")))
            return tuple(items)
        if isinstance(expression, Projection):
            value = yield self._expression(expression.value, environment, "")
            return value if isinstance(value, StandIn) else item_of(value, expression.index)
        if isinstance(expression, Condition):
            return self._refuse("if", expression.line)
        if isinstance(expression, Scalar):
            return expression.value
        if isinstance(expression, MetaReference):
            return self._metadata.constant(expression)
        if isinstance(expression, Function):
            return Closure(expression, environment)
        if isinstance(expression, GlobalName):
            return self._global(expression)
        if isinstance(expression, Local):
            return look_up(expression, environment)
        raise GraphError(f"line {expression.line}: operator {expression.name} is not called; only calls are read")

    def _global(self, name: GlobalName) -> Closure:
        if name.name not in self._module.functions:
            raise GraphError(f"line {name.line}: function @{name.name} is not defined")
        return Closure(self._module.functions[name.name], Environment(), name.name)

    def _call(self, call: Call, environment: Environment, name: str) -> Steps:
        call = self._with_metadata(call)
        inputs = []
        for argument in call.arguments:
            inputs.append((yield self._expression(argument, environment, "")))
        if isinstance(call.callee, OperatorName):
            return self._operator(call.callee, call, inputs, name)
        callee = yield self._expression(call.callee, environment, "")
        if isinstance(callee, StandIn):
            return callee
        if not isinstance(callee, Closure):
            raise GraphError(f"line {call.line}: a tensor or tuple is called; only functions and operators are")
        if call.attributes:
            raise GraphError(f"line {call.line}: a function is called with attribute {next(iter(call.attributes))}")
        return (yield self._inlined(callee, inputs, call.line))

    def _with_metadata(self, call: Call) -> Call:
        """The call with its own attributes where the text has them in the metadata, as its last argument."""
        last = call.arguments[-1] if call.arguments else None
        if not isinstance(last, MetaReference) or not last.key.startswith("relay.attrs."):
            return call
        attributes = {**self._metadata.attributes(last), **call.attributes}
        return Call(call.callee, call.arguments[:-1], attributes, call.line)

    def _inlined(self, closure: Closure, inputs: Sequence[Known], line: int) -> Steps:
        function = closure.function
        if len(inputs) != len(function.parameters):
            raise GraphError(
                f"line {line}: a function of {len(function.parameters)} arguments is called with {len(inputs)}"
            )
        if closure.name and closure.name in self._active:
            raise GraphError(f"line {line}: @{closure.name} calls itself; a graph has no recursion")
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise GraphError(f"line {line}: the module makes more than {_MOST_CALLS} function calls; no network does")
        environment = Environment(closure.environment)
        for parameter, value in zip(function.parameters, inputs, strict=True):
            check_type(value, parameter.type, f"line {line}: argument %{parameter.name}")
            environment.values[parameter.name] = value
        self._active.append(closure.name)
        value = yield self._body(function.body, environment)
        self._active.pop()
        return value

    def _operator(self, operator: OperatorName, call: Call, inputs: Sequence[Known], name: str) -> Known:
        convert = find_converter(operator.name)
        if convert is None and not is_foldable(operator.name):
            return self._refuse(operator.name, operator.line)
        label = f"line {operator.line}, {operator.name}"
        attributes = complete(operator.name, call.attributes, len(inputs), label)
        if self._lacks_weights(operator, inputs) or any(isinstance(item, StandIn) for item in flat(tuple(inputs))):
            return StandIn()
        values = tuple(as_value(value, label) for value in inputs)
        title = self._scope.made_up(_result_name(operator.name.rpartition(".")[2], name))
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
        return self._refuse(operator.name, operator.line)

    def _lacks_weights(self, operator: OperatorName, inputs: Sequence[Known]) -> bool:
        """Whether a parameter of a trained operator is an argument without a value, which is noted."""
        places = _WEIGHTS.get(operator.name, ())
        lacking = [
            value
            for place, value in enumerate(inputs)
            if place in places and isinstance(value, Symbol) and value in self._inputs
        ]
        for value in lacking:
            self._missing.setdefault(value.name, f"line {operator.line}, {operator.name}")
        return bool(lacking)

    def _refuse(self, operator: str, line: int) -> StandIn:
        self._uncovered.setdefault(operator, []).append(f"line {line}")
        return StandIn()

    def _refusal(self) -> UnsupportedOperatorError:
        """The error that lists everything that was refused."""
        parts = list(self._misused)
        if self._uncovered:
            advice = "simplify the module before printing, or cut it before them"
            parts.insert(0, list_uncovered(f"function @{self._name}", self._uncovered, advice))
        return UnsupportedOperatorError("; ".join(parts))


def _result_name(kind: str, bound: str) -> str:
    """A symbol's name: that of a let, the kind with the number of a graph binding, else the kind alone."""
    if not bound:
        return kind
    return f"{kind}_{bound}" if bound.isdecimal() else bound
