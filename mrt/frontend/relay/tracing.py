"""The operators that a Relay text calls and what each reads, before any of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrt.frontend.relay.interpreter import Interpreter
from mrt.frontend.relay.metadata import Metadata
from mrt.frontend.relay.syntax import Call, Condition, Module, OperatorName
from mrt.frontend.relay.values import Environment, Known, Traced, flat
from mrt.frontend.shared.node import ModelScope
from mrt.frontend.shared.split import FileOperator
from mrt.symbol import GraphBuilder

Key = tuple[str | int, ...]
"""An argument by its name, or the number of an operator with the places of an item of what it gives."""


@dataclass(frozen=True)
class TracedOperator:
    """One operator that is called. inputs: for each of its places what it reads; of a constant nothing."""

    name: str
    kind: str
    line: int
    inputs: tuple[tuple[Key, ...], ...]
    call: Call | None


@dataclass(frozen=True)
class Trace:
    """The operators by their numbers, and what the result is made of."""

    operators: tuple[TracedOperator, ...]
    outputs: tuple[Key, ...]

    def described(self) -> list[FileOperator]:
        """The operators that the result needs."""
        read: dict[int, set[Key]] = {}
        pending = list(self.outputs)
        while pending:
            key = pending.pop()
            number = key[0]
            if isinstance(number, int):
                if number not in read:
                    read[number] = set()
                    pending += [source for place in self.operators[number].inputs for source in place]
                read[number].add(key)
        return [
            FileOperator(operator.name, operator.kind, [key for place in operator.inputs for key in place], [*keys])
            for operator, keys in ((self.operators[number], _sorted(read[number])) for number in sorted(read))
        ]

    def needed(self, outputs: Sequence[Key]) -> frozenset[int]:
        """The numbers of the operators that these outputs need."""
        found: set[int] = set()
        pending = list(outputs)
        while pending:
            number = pending.pop()[0]
            if isinstance(number, int) and number not in found:
                found.add(number)
                pending += [source for place in self.operators[number].inputs for source in place]
        return frozenset(found)


def _sorted(keys: set[Key]) -> list[Key]:
    return sorted(keys, key=lambda key: tuple(int(part) for part in key))


def trace(module: Module, name: str, metadata: Metadata) -> Trace:
    """What the function calls; GraphError where it is malformed."""
    return _Tracer(module, name, metadata).trace()


class _Tracer(Interpreter):
    """Gives keys in place of values."""

    def __init__(self, module: Module, name: str, metadata: Metadata) -> None:
        super().__init__(module, name, metadata)
        self._scope = ModelScope(parameter.name for parameter in self._main.parameters)
        self._names = GraphBuilder()
        self._operators: list[TracedOperator] = []

    def trace(self) -> Trace:
        environment = Environment()
        for parameter in self._main.parameters:
            environment.values[parameter.name] = Traced((parameter.name,))
        result = self._run(self._body(self._main.body, environment))
        return Trace(tuple(self._operators), _keys(result))

    def _operator(self, number: int, operator: OperatorName, call: Call, inputs: Sequence[Known], name: str) -> Known:
        return self._met_operator(number, operator.name, operator.line, inputs, name, call)

    def _condition(self, number: int, condition: Condition, given: Sequence[Known]) -> Known:
        return self._met_operator(number, "if", condition.line, given, "", None)

    def _bound(self, name: str, value: Known) -> None:
        """Nothing: a trace keeps operators, not constants."""

    def _met_operator(
        self, number: int, kind: str, line: int, inputs: Sequence[Known], bound: str, call: Call | None
    ) -> Known:
        title = self._names.unique(self._scope.made_up(result_name(kind.rpartition(".")[2], bound)))
        self._operators.append(TracedOperator(title, kind, line, tuple(map(_keys, inputs)), call))
        return Traced((number,))


def _keys(value: Known) -> tuple[Key, ...]:
    return tuple(item.key for item in flat(value) if isinstance(item, Traced))


def result_name(kind: str, bound: str) -> str:
    """A symbol's name: that of a let, the kind with the number of a graph binding, else the kind alone."""
    if not bound:
        return kind
    return f"{kind}_{bound}" if bound.isdecimal() else bound
