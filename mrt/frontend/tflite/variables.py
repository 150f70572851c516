"""Variables of a TFLite file: tensors that outlive a run become inputs and outputs of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.tflite.files import StoredModel, StoredOperator
from mrt.symbol import Array, Graph
from mrt.symbol.states import Pair, paired

_KINDS = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable that a run reads before it sets it.

    read: the tensor that holds it as the run begins, an input of the model. set: the one that the next run reads, an
    output. initial: what the first run reads, of the type of the tensor.
    """

    name: str
    read: int
    set: int
    initial: Array


def without_variables(model: StoredModel) -> tuple[StoredModel, tuple[Variable, ...]]:
    """A model without handles, reads and assignments, and the variables that are its last inputs and outputs.

    A variable that is never set is a constant; one that is set before it is read is a tensor like any other. Raises
    GraphError for a variable that is read and has no initial value, UnsupportedOperatorError for one that is set by
    anything but a constant when the program begins.
    """
    if not any(operator.kind in _KINDS for operator in model.operators):
        return model, ()
    return _Removal(model).result()


def with_variables(
    graph: Graph, variables: Sequence[Variable], names: Mapping[int, str], outputs: Sequence[int]
) -> Graph:
    """The graph of a model `without_variables`, with its variables as states.

    names: of the graph's inputs, by their tensors. outputs: the tensors that the graph gives, in order. Raises
    GraphError for a variable whose next value is none of them, since a split left it out.
    """
    read = [variable for variable in variables if names[variable.read] in graph.by_name]
    lost = [variable.name for variable in read if variable.set not in outputs]
    if lost:
        raise GraphError(
            f"what the variables {', '.join(lost)} hold at the next call is left out by prepare.split; a state is kept "
            "in integers: cut the network behind it"
        )
    places = {tensor: place for place, tensor in enumerate(outputs)}
    return paired(graph, [Pair(names[variable.read], places[variable.set], variable.initial) for variable in read])


class _Removal:
    """Follows the operators in their order: what each variable holds, and which tensor stands for which."""

    def __init__(self, model: StoredModel) -> None:
        self._model = model
        self._operators: list[StoredOperator] = []
        self._handles: dict[int, str] = {}
        self._same: dict[int, int] = {}
        # By the variable's name: its value at the beginning, the tensor that first read it, the one that holds it now.
        self._initial: dict[str, tuple[StoredModel, int]] = {}
        self._first: dict[str, int] = {}
        self._held: dict[str, int] = {}

    def result(self) -> tuple[StoredModel, tuple[Variable, ...]]:
        for operator in self._model.operators:
            self._follow(operator)
        tensors = list(self._model.tensors)
        for handle, name in self._handles.items():
            tensors[handle] = replace(tensors[handle], name=f"{name}_handle")
        variables = []
        for name, read in self._first.items():
            graph, stored = self._initial[name]
            if self._held[name] == read:
                tensors[read] = replace(graph.tensors[stored], name=tensors[read].name)
            else:
                tensors[read] = replace(tensors[read], name=name)
                variables.append(Variable(name, read, self._held[name], self._value(name)))
        made = replace(
            self._model,
            tensors=tuple(tensors),
            operators=tuple(self._operators),
            inputs=(*self._model.inputs, *(variable.read for variable in variables)),
            outputs=(*map(self._tensor, self._model.outputs), *(variable.set for variable in variables)),
            signature={self._tensor(index): name for index, name in self._model.signature.items()},
        )
        return made, tuple(variables)

    def _tensor(self, index: int) -> int:
        return self._same.get(index, index)

    def _follow(self, operator: StoredOperator) -> None:
        if operator.kind == "VAR_HANDLE":
            self._handles[operator.outputs[0]] = _variable(operator)
        elif operator.kind == "CALL_ONCE":
            self._begin(operator)
        elif operator.kind == "READ_VARIABLE":
            self._read(self._named(operator), operator.outputs[0])
        elif operator.kind == "ASSIGN_VARIABLE":
            name = self._named(operator)
            self._held[name] = self._tensor(operator.inputs[1])
        else:
            self._operators.append(replace(operator, inputs=tuple(map(self._tensor, operator.inputs))))

    def _read(self, name: str, output: int) -> None:
        if name in self._held:
            self._same[output] = self._held[name]
        elif name not in self._initial:
            raise GraphError(f"{self._model.title}: the variable {name} is read before anything sets it")
        else:
            self._first[name] = self._held[name] = output

    def _named(self, operator: StoredOperator) -> str:
        """The variable that a read or an assignment means."""
        needed = 1 if operator.kind == "READ_VARIABLE" else 2
        if len(operator.inputs) != needed or operator.inputs[0] not in self._handles or min(operator.inputs) < 0:
            raise GraphError(f"{self._model.title}: {operator.kind} does not name a variable; the model is malformed")
        return self._handles[operator.inputs[0]]

    def _begin(self, caller: StoredOperator) -> None:
        """What a graph that runs once sets."""
        graph = self._model.other(
            caller.options("CallOnceOptions", "CALL_ONCE").integer("InitSubgraphIndex"), "CALL_ONCE"
        )
        handles: dict[int, str] = {}
        for operator in graph.operators:
            if operator.kind == "VAR_HANDLE":
                handles[operator.outputs[0]] = _variable(operator)
            elif operator.kind == "ASSIGN_VARIABLE" and len(operator.inputs) == 2 and operator.inputs[0] in handles:
                self._initial[handles[operator.inputs[0]]] = (graph, operator.inputs[1])
            else:
                raise UnsupportedOperatorError(
                    f"{self._model.title}: {operator.kind} computes what variables are at first; constants are needed"
                )

    def _value(self, name: str) -> Array:
        graph, index = self._initial[name]
        value = graph.constant(graph.tensors[index])
        if value is None:
            raise GraphError(f"{self._model.title}: the variable {name} has no constant as its first value")
        return value


def _variable(operator: StoredOperator) -> str:
    options = operator.options("VarHandleOptions", "VAR_HANDLE")
    return "/".join(filter(None, (options.text("Container"), options.text("SharedName"))))
