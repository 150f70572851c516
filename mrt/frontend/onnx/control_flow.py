"""If, Loop and Scan put in place as the nodes that they stand for.

What decides must be known while reading; only an If may choose between the results of both its graphs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx.constants import is_standard
from mrt.frontend.onnx.node import Scope
from mrt.frontend.shared.recurrence import MOST_STEPS
from mrt.frontend.shared.remedies import remedies
from mrt.symbol import Array, Symbol

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
"""The operators that hold graphs."""

_FEWEST_INPUTS = {"If": 1, "Loop": 2, "Scan": 1}
_MOST_NODES = 100_000
"""So many nodes control flow may stand for, with loops in loops."""


def holds_graphs(node: onnx.NodeProto) -> bool:
    return is_standard(node) and node.op_type in CONTROL_FLOW


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that a node holds."""
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]


def names_read(node: onnx.NodeProto) -> set[str]:
    """The values that a node reads, those that graphs in it capture among them, and perhaps some of these graphs."""
    names = set(node.input)
    pending = graphs_of(node)
    while pending:
        graph = pending.pop()
        names.update(output.name for output in graph.output)
        for inner in graph.node:
            names.update(inner.input)
            pending += graphs_of(inner)
    return names


def names_made(graph: onnx.GraphProto) -> set[str]:
    """All names of values in the graphs that a graph's nodes hold."""
    names: set[str] = set()
    pending = [inner for node in graph.node for inner in graphs_of(node)]
    while pending:
        inner = pending.pop()
        names |= _own_names(inner)
        pending += [deeper for node in inner.node for deeper in graphs_of(node)]
    return names


def live_nodes(graph: onnx.GraphProto, outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that one of these values needs, in order."""
    needed = set(outputs)
    live = []
    for node in reversed(graph.node):
        if any(name in needed for name in node.output):
            live.append(node)
            needed |= names_read(node)
    return live[::-1]


def _own_names(graph: onnx.GraphProto) -> set[str]:
    """The names of values that a graph itself makes or is given."""
    names = {value.name for value in (*graph.input, *graph.initializer)}
    return names | {name for node in graph.node for name in node.output if name}


@dataclass(frozen=True)
class LoopStep:
    """What is left of a Loop after some of its steps."""

    node: onnx.NodeProto
    done: int
    going: str
    """The value that says whether there is another step, empty where the count alone does."""
    carried: tuple[str, ...]
    gathered: tuple[tuple[str, ...], ...]
    """Of each result that is gathered over the steps, the values of those done."""


@dataclass(frozen=True)
class Choice:
    """What is left of an If whose condition depends on the data, behind the nodes of both graphs: their results."""

    node: onnx.NodeProto
    results: tuple[tuple[str, str], ...]


Item: TypeAlias = onnx.NodeProto | LoopStep | Choice


@dataclass
class ControlFlow:
    """Unfolds the control flow of one model while it is read."""

    scope: Scope
    taken: set[str]
    """Names that values have: those of the model, and those made here."""
    title: str
    """What errors call the model."""
    _made: int = field(default=0)

    def unfolded(self, item: Item) -> list[Item] | None:
        """The nodes that control flow stands for, whose results have its names; None for any other node.

        Raises UnsupportedOperatorError where the data decide, GraphError where the model is malformed.
        """
        if isinstance(item, LoopStep):
            parts = self._loop_step(item)
        elif isinstance(item, Choice):
            parts = self._chosen(item)
        elif not holds_graphs(item):
            return None
        elif len(item.input) < (needed := _FEWEST_INPUTS[item.op_type]):
            raise GraphError(f"{_label(item)}: has {len(item.input)} inputs; {needed} are needed")
        else:
            parts = {"If": self._branch, "Loop": self._loop, "Scan": self._scan}[item.op_type](item)
        self._made += len(parts)
        if self._made > _MOST_NODES:
            raise GraphError(f"{_label(item)}: stands for more than {_MOST_NODES} nodes; no network has so many")
        return parts

    def _branch(self, node: onnx.NodeProto) -> list[Item]:
        """The nodes of the branch that is taken, or of both where the data decide."""
        if isinstance(self._read(node, node.input[0]), Symbol):
            return self._both(node)
        condition = self._known(node, node.input[0], "condition")
        graph = _graph(node, "then_branch" if condition else "else_branch")
        return [*self._inlined(node, graph, [], list(node.output))]

    def _both(self, node: onnx.NodeProto) -> list[Item]:
        nodes: list[Item] = []
        names: list[list[str]] = []
        for branch in ("then_branch", "else_branch"):
            names.append([self._fresh(f"{name}_{branch}") if name else "" for name in node.output])
            nodes += self._inlined(node, _graph(node, branch), [], names[-1])
        return [*nodes, Choice(node, tuple(zip(*names, strict=True)))]

    def _chosen(self, choice: Choice) -> list[Item]:
        """A Where for each output; UnsupportedOperatorError where the graphs give other shapes."""
        node = choice.node
        nodes: list[onnx.NodeProto] = []
        for name, pair in zip(node.output, choice.results, strict=True):
            if not name:
                continue
            shapes = [tuple(self._read(node, result).shape) for result in pair]
            if shapes[0] != shapes[1]:
                raise UnsupportedOperatorError(
                    f"{_label(node)}: its condition {node.input[0]} depends on the data, and its branches give "
                    f"{name} the shapes {shapes[0]} and {shapes[1]}; equal ones are needed"
                )
            condition = node.input[0]
            if len(self._read(node, condition).shape) > len(shapes[0]):
                condition, one = self._fresh(f"{name}_condition"), self._fresh(f"{name}_one")
                flat = helper.make_node("Reshape", [node.input[0], one], [condition])
                nodes += [_constant(one, np.ones(len(shapes[0]), np.int64)), flat]
            nodes.append(helper.make_node("Where", [condition, *pair], [name]))
        return [*nodes]

    def _loop(self, node: onnx.NodeProto) -> list[Item]:
        if node.input[0] and _counts_alone(_graph(node, "body")):
            self._check_steps(node, self._known(node, node.input[0], "trip count"))
        results = len(_graph(node, "body").output) - 1 - len(node.input[2:])
        going = node.input[1] if len(node.input) > 1 else ""
        return [LoopStep(node, 0, going, tuple(node.input[2:]), ((),) * results)]

    def _loop_step(self, step: LoopStep) -> list[Item]:
        """Case 1: the loop has ended: its results. Case 2: the nodes of one step, and what is left."""
        node = step.node
        going = self._known(node, step.going, "condition") if step.going else 1
        limit = self._known(node, node.input[0], "trip count") if node.input[0] else None
        if not going or (limit is not None and step.done >= limit):
            carried = [_copied(source, name) for source, name in zip(step.carried, node.output, strict=False)]
            names = node.output[len(step.carried) :]
            stacks = [self._stacked(node, *pair) for pair in zip(step.gathered, names, strict=False)]
            return [part for part in (*carried, *(item for items in stacks for item in items)) if part.output[0]]
        self._check_steps(node, step.done + 1)
        body = _graph(node, "body")
        number, on = self._fresh(f"{_title(node)}_step"), self._fresh(f"{_title(node)}_on")
        results = [self._fresh(output.name) for output in body.output]
        constants = [_constant(number, np.asarray(step.done, np.int64)), _constant(on, np.asarray(True))]
        nodes = self._inlined(node, body, [number, on, *step.carried], results)
        count = 1 + len(step.carried)
        gathered = tuple((*old, new) for old, new in zip(step.gathered, results[count:], strict=True))
        left = replace(step, done=step.done + 1, going=results[0], carried=tuple(results[1:count]), gathered=gathered)
        return [*constants, *nodes, left]

    def _scan(self, node: onnx.NodeProto) -> list[Item]:
        body, count = _graph(node, "body"), _integer(node, "num_scan_inputs")
        states, scanned = list(node.input[: len(node.input) - count]), node.input[len(node.input) - count :]
        outputs = len(body.output) - len(states)
        axes, backwards = _each(node, "scan_input_axes", count), _each(node, "scan_input_directions", count)
        steps = {self.scope.value(name).shape[axis] for name, axis in zip(scanned, axes, strict=True)}
        if len(steps) != 1:
            raise GraphError(f"{_label(node)}: scans {sorted(steps)} elements; equal lengths are needed")
        length = steps.pop()
        self._check_steps(node, length)
        gathered: list[list[str]] = [[] for _ in range(outputs)]
        items: list[onnx.NodeProto] = []
        for step in range(length):
            given = [self._fresh(f"{name}_{step}") for name in scanned]
            for name, part, axis, back in zip(scanned, given, axes, backwards, strict=True):
                items += self._element(name, part, axis, length - 1 - step if back else step)
            results = [self._fresh(output.name) for output in body.output]
            items += self._inlined(node, body, [*states, *given], results)
            states = results[: len(states)]
            for old, new in zip(gathered, results[len(states) :], strict=True):
                old.append(new)
        items += [_copied(s, name) for s, name in zip(states, node.output, strict=False) if name]
        flips, along = _each(node, "scan_output_directions", outputs), _each(node, "scan_output_axes", outputs)
        for parts, name, flip, axis in zip(gathered, node.output[len(states) :], flips, along, strict=False):
            items += self._stacked(node, parts[::-1] if flip else parts, name, axis) if name else []
        return [*items]

    def _check_steps(self, node: onnx.NodeProto, steps: int) -> None:
        if steps > MOST_STEPS:
            raise UnsupportedOperatorError(
                f"{_label(node)}: has more than {MOST_STEPS} steps, each of which would be operators of its own; "
                "export the network for fewer"
            )

    def _element(self, name: str, result: str, axis: int, place: int) -> list[onnx.NodeProto]:
        index = self._fresh(f"{result}_index")
        gather = helper.make_node("Gather", [name, index], [result], axis=axis)
        return [_constant(index, np.asarray(place, np.int64)), gather]

    def _stacked(self, node: onnx.NodeProto, parts: Sequence[str], name: str, axis: int = 0) -> list[onnx.NodeProto]:
        """The values of all steps along a new axis."""
        if not parts and name:
            raise UnsupportedOperatorError(f"{_label(node)}: has no step to gather {name} from; one is needed")
        rows = [self._fresh(f"{part}_row") for part in parts]
        if self.scope.opset < 13:
            nodes = [helper.make_node("Unsqueeze", [p], [r], axes=[axis]) for p, r in zip(parts, rows, strict=True)]
        else:
            along = self._fresh(f"{name}_axis")
            nodes = [_constant(along, np.asarray([axis], np.int64))]
            nodes += [helper.make_node("Unsqueeze", [p, along], [r]) for p, r in zip(parts, rows, strict=True)]
        return [*nodes, helper.make_node("Concat", rows, [name], axis=axis)]

    def _inlined(
        self, node: onnx.NodeProto, graph: onnx.GraphProto, given: Sequence[str], results: Sequence[str]
    ) -> list[onnx.NodeProto]:
        """The nodes of a graph, its inputs being the values `given`, its outputs called `results` (empty: unused)."""
        if len(given) != len(graph.input) or len(results) > len(graph.output):
            raise GraphError(f"{_label(node)}: its graph has {len(graph.input)} inputs and {len(graph.output)} outputs")
        if graph.sparse_initializer:
            raise GraphError(f"{_label(node)}: its graph has sparse initializers, which are not read")
        nodes = live_nodes(graph, (output.name for output in graph.output))
        names = dict(zip((value.name for value in graph.input), given, strict=True))
        made = {name for inner in nodes for name in inner.output if name}
        copies = []
        for output, result in zip(graph.output, results, strict=False):
            if output.name in made and output.name not in names and result:
                names[output.name] = result
            elif result:
                copies.append((output.name, result))
        for tensor in graph.initializer:
            names[tensor.name] = self._fresh(tensor.name)
            self.scope.define(names[tensor.name], self.scope.given(tensor))
        for name in sorted(made - set(names)):
            names[name] = self._fresh(name)
        inlined = [_renamed(inner, names) for inner in nodes]
        return inlined + [_copied(names.get(source, source), result) for source, result in copies]

    def _fresh(self, name: str) -> str:
        """A name for a value that has this one in its graph."""
        free, count = name, 1
        while free in self.taken:
            free, count = f"{name}_{count}", count + 1
        self.taken.add(free)
        return free

    def _read(self, node: onnx.NodeProto, name: str) -> Symbol | Array:
        if name not in self.scope:
            raise GraphError(f"{_label(node)}: reads {name}, which no input, initializer or earlier node gives")
        value: Symbol | Array = self.scope.value(name)
        return value

    def _known(self, node: onnx.NodeProto, name: str, role: str) -> int:
        """A value of one element that decides; UnsupportedOperatorError where it depends on the data."""
        value = self._read(node, name)
        if isinstance(value, Symbol):
            raise UnsupportedOperatorError(
                f"{_label(node)}: its {role} {name} depends on the data; {remedies([node.op_type])[0]}"
            )
        if value.size != 1:
            raise GraphError(f"{_label(node)}: its {role} has shape {value.shape}; one number is needed")
        return int(value.reshape(()))


def _title(node: onnx.NodeProto) -> str:
    return str(next(filter(None, node.output), node.name))


def _label(item: Item) -> str:
    node = item if isinstance(item, onnx.NodeProto) else item.node
    return f"{node.name or _title(node)} ({node.op_type})"


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    for attribute in node.attribute:
        if attribute.name == name and attribute.type == onnx.AttributeProto.GRAPH:
            return attribute.g
    raise GraphError(f"{_label(node)}: has no {name}; the model is malformed")


def _counts_alone(body: onnx.GraphProto) -> bool:
    """Whether a loop's body hands on the condition that it is given."""
    going, given = body.output[0].name, body.input[1].name if len(body.input) > 1 else ""
    return going == given or any(
        node.op_type == "Identity" and going in node.output and given in node.input for node in body.node
    )


def _integer(node: onnx.NodeProto, name: str) -> int:
    value = next((int(item.i) for item in node.attribute if item.name == name), 0)
    if not 0 < value <= len(node.input):
        raise GraphError(f"{_label(node)}: {name} is {value}; 1 to {len(node.input)} is needed")
    return value


def _each(node: onnx.NodeProto, name: str, count: int) -> list[int]:
    """A list of integers, one for each of `count` values; zeros where it is not stated."""
    found = next((list(item.ints) for item in node.attribute if item.name == name), [0] * count)
    if len(found) != count:
        raise GraphError(f"{_label(node)}: {name} has {len(found)} entries; {count} are needed")
    return [int(item) for item in found]


def _copied(source: str, name: str) -> onnx.NodeProto:
    return helper.make_node("Identity", [source], [name])


def _constant(name: str, value: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node with other names of values, in the graphs that it holds too, but for those that these make."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    pending: list[tuple[onnx.NodeProto, Mapping[str, str]]] = [(copy, names)]
    while pending:
        current, known = pending.pop()
        _rename(current.input, known)
        _rename(current.output, known)
        for graph in graphs_of(current):
            own = _own_names(graph)
            outer = {name: other for name, other in known.items() if name not in own}
            for output in graph.output:
                output.name = outer.get(output.name, output.name)
            pending += [(inner, outer) for inner in graph.node]
    return copy


def _rename(fields: MutableSequence[str], names: Mapping[str, str]) -> None:
    for place, name in enumerate(fields):
        fields[place] = names.get(name, name)


def deciders(
    node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], known: set[str], real: Collection[str]
) -> list[str]:
    """The inputs of the model that decide what an If or Loop among `nodes` does and are not known, by name.

    real: the inputs of real numbers. An If that they alone decide chooses between its results, by computation; a Scan
    is decided by shapes.
    """
    deciding = {"If": node.input[:1], "Loop": node.input[:2]}.get(node.op_type, [])
    found = [source for name in deciding if name and name not in known for source in _sources(nodes, name)]
    unknown = sorted(set(found) - known)
    return [] if node.op_type == "If" and set(unknown) <= set(real) else unknown


def _sources(nodes: Sequence[onnx.NodeProto], name: str) -> list[str]:
    """The values from which one is computed and which no node gives: inputs of the graph, and constants."""
    producers = {output: node for node in nodes for output in node.output}
    seen, pending, found = {name}, [name], []
    while pending:
        current = pending.pop()
        if current not in producers:
            found.append(current)
            continue
        new = [given for given in producers[current].input if given and given not in seen]
        seen.update(new)
        pending += new
    return found
