"""IF of a TFLite file: both graphs stand in the main one, and the condition chooses between what they give."""

from __future__ import annotations

from dataclasses import replace

from mrt.errors import ModelFileError
from mrt.frontend.tflite.files import StoredModel, StoredOperator

_MOST = 100_000
"""So many operators may come of the graphs that branches run: nested ones double with each level."""


def without_branches(model: StoredModel) -> StoredModel:
    """A model in which every IF is the operators of both its graphs and one SELECT_V2 for each output.

    The graphs compute without effects, so that the branch not taken costs time alone. An output that both graphs take
    from one tensor is not chosen. Raises ModelFileError where a graph is missing, runs itself or does not fit.
    """
    if not any(operator.kind == "IF" for operator in model.operators):
        return model
    return _Inlining(model).model()


class _Inlining:
    """Collects the tensors and operators of the model that is made."""

    def __init__(self, model: StoredModel) -> None:
        self._model = model
        self._tensors = list(model.tensors)
        self._operators: list[StoredOperator] = []

    def model(self) -> StoredModel:
        self._add(self._model.operators, list(range(len(self._tensors))), ())
        return replace(self._model, tensors=tuple(self._tensors), operators=tuple(self._operators))

    def _add(self, operators: tuple[StoredOperator, ...], places: list[int], within: tuple[int, ...]) -> None:
        """Adds the operators of a graph. places: its tensors' numbers here. within: the graphs that run this one."""
        for operator in operators:
            moved = replace(
                operator,
                inputs=tuple(-1 if index < 0 else places[index] for index in operator.inputs),
                outputs=tuple(places[index] for index in operator.outputs),
            )
            if operator.kind == "IF":
                self._choose(moved, within)
            else:
                self._operators.append(moved)
            if len(self._operators) > _MOST:
                raise ModelFileError(f"{self._model.title}: its branches hold more than {_MOST} operators")

    def _choose(self, operator: StoredOperator, within: tuple[int, ...]) -> None:
        label = f"{self._tensors[operator.outputs[0]].name} (IF)"
        options = operator.options("IfOptions", label)
        condition, *given = operator.inputs or (-1,)
        if min(condition, *given, condition) < 0:
            raise ModelFileError(f"{self._model.title}: {label}: an input is left out; the model is malformed")
        results = [
            self._branch(options.integer(name), given, len(operator.outputs), label, within)
            for name in ("ThenSubgraphIndex", "ElseSubgraphIndex")
        ]
        for output, first, second in zip(operator.outputs, *results, strict=True):
            self._operators.append(StoredOperator("SELECT_V2", (condition, first, second), (output,), "NONE", None))

    def _branch(self, index: int, given: list[int], outputs: int, label: str, within: tuple[int, ...]) -> list[int]:
        """Adds the operators of one graph; the numbers of its outputs."""
        graph = self._model.other(index, label)
        if index in within:
            raise ModelFileError(f"{self._model.title}: {label} runs graph {index} within itself")
        if len(graph.inputs) != len(given) or len(graph.outputs) != outputs:
            raise ModelFileError(
                f"{self._model.title}: {label} has {len(given)} inputs and {outputs} outputs; graph {index}, which it "
                f"runs, {len(graph.inputs)} and {len(graph.outputs)}"
            )
        places = list(range(len(self._tensors), len(self._tensors) + len(graph.tensors)))
        self._tensors += graph.tensors
        for inner, outer in zip(graph.inputs, given, strict=True):
            places[inner] = outer
        self._add(graph.operators, places, (*within, index))
        return [places[output] for output in graph.outputs]
