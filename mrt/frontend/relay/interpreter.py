"""The expressions of a Relay text followed to the operators that they call: functions are inlined, nothing recurses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mrt.errors import GraphError
from mrt.frontend.relay.metadata import Metadata
from mrt.frontend.relay.stated_types import check_type
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
from mrt.frontend.relay.values import Closure, Environment, Known, StandIn, Steps, look_up, names_in, projected

_MOST_CALLS = 20_000
"""How many function calls are inlined: functions that call each other may stand for any number."""


class Interpreter(ABC):
    """Follows one function. What its operators give is said by those who derive from it.

    The operators that are met are numbered from 0: the same text gives the same numbers, whatever its values are.
    """

    def __init__(self, module: Module, name: str, metadata: Metadata) -> None:
        self._module, self._name, self._metadata = module, name, metadata
        self._main = module.functions[name]
        self._active: list[str] = [name]
        self._calls = 0
        self._met = 0
        self._live_bindings: dict[int, list[Binding]] = {}

    @abstractmethod
    def _operator(self, number: int, operator: OperatorName, call: Call, inputs: Sequence[Known], name: str) -> Known:
        """What an operator gives. number: its own; name: what the result is bound to, "" where it is a part."""

    @abstractmethod
    def _condition(self, number: int, condition: Condition, given: Sequence[Known]) -> Known:
        """What `if` gives. given: what its parts name."""

    @abstractmethod
    def _bound(self, name: str, value: Known) -> None:
        """Notes what a name is bound to."""

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
            self._bound(binding.name, value)
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
            return projected(value, expression.index)
        if isinstance(expression, Condition):
            given = [found for each in names_in(expression) if (found := environment.find(each)) is not None]
            return self._condition(self._number(), expression, given)
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
            return self._operator(self._number(), call.callee, call, inputs, name)
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

    def _number(self) -> int:
        self._met += 1
        return self._met - 1
