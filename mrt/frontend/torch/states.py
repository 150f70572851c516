"""What an exported program changes while it runs, its buffers and inputs, as inputs and outputs of a pure program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

from mrt.errors import GraphError
from mrt.symbol import Array, Graph
from mrt.symbol.states import Pair, paired

CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
"""Of outputs that a program does not return, but writes into what it has read."""


@dataclass(frozen=True, eq=False)
class Changed:
    """A state of a program: the names of the input that holds it and of the node that it holds next, its initial value
    (None: zeros), and what the module calls it."""

    input: str
    node: str
    initial: Array | None
    name: str


def take_states_out(program: torch.export.ExportedProgram) -> list[Changed]:
    """Makes changed buffers inputs, and what is written into them or into inputs outputs behind all others, in place.

    GraphError naming a buffer or input that is changed and holds no real values.
    """
    signature = program.graph_signature
    changes = [spec for spec in signature.output_specs if spec.kind in CHANGES]
    if not changes:
        return []
    _check_real(program, changes)
    _check_fed(program, changes)
    stored = {**program.state_dict, **program.constants}
    holding = {spec.target: spec for spec in signature.input_specs if spec.kind is InputKind.BUFFER}
    found = []
    for change in changes:
        if change.kind is OutputKind.USER_INPUT_MUTATION:
            found.append(Changed(change.target, change.arg.name, None, change.target))
            continue
        buffer = holding[change.target]
        initial = stored[change.target].detach().to(torch.float32).cpu().numpy()
        found.append(Changed(buffer.arg.name, change.arg.name, initial, change.target))
        signature.input_specs[signature.input_specs.index(buffer)] = InputSpec(InputKind.USER_INPUT, buffer.arg, None)
    names = {change.target for change in changes}
    # The dictionary is that of the program as exported too.
    program._constants = {name: value for name, value in program.constants.items() if name not in names}
    _move_behind(program, changes)
    return found


def _check_real(program: torch.export.ExportedProgram, changes: Sequence[OutputSpec]) -> None:
    nodes = {node.name: node for node in program.graph.nodes}
    wrong = [
        f"{change.target} ({dtype})"
        for change in changes
        if not (dtype := nodes[change.arg.name].meta["val"].dtype).is_floating_point
    ]
    if wrong:
        raise GraphError(
            f"the program changes {', '.join(wrong)} while it runs, and only real values are kept between calls: let "
            "forward() take a counter or position as an argument, and feed it at every call; a cache of fixed length "
            "that drops its oldest entry, torch.cat([cache[:, 1:], new], 1), needs none"
        )


def _check_fed(program: torch.export.ExportedProgram, changes: Sequence[OutputSpec]) -> None:
    """GraphError where the program writes into all that it is given."""
    written = {change.target for change in changes if change.kind is OutputKind.USER_INPUT_MUTATION}
    if written and written.issuperset(program.graph_signature.user_inputs):
        raise GraphError(
            f"forward() writes into {', '.join(sorted(written))}, all that it is given, which then is a state that "
            "no call feeds: let no operator in place, such as ReLU(inplace=True), begin at an input"
        )


def _move_behind(program: torch.export.ExportedProgram, changes: Sequence[OutputSpec]) -> None:
    """Outputs that are returned first, then those that are written."""
    signature = program.graph_signature
    output = next(iter(program.graph.find_nodes(op="output")))
    pairs = list(zip(output.args[0], signature.output_specs, strict=True))
    kept = [(item, spec) for item, spec in pairs if spec not in changes]
    kept += [
        (item, OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=spec.arg.name), None))
        for item, spec in pairs
        if spec in changes
    ]
    output.args = (tuple(item for item, _ in kept),)
    signature.output_specs[:] = [spec for _, spec in kept]


def with_changes(graph: Graph, states: Sequence[Changed], outputs: Sequence[str]) -> Graph:
    """The graph of a program with its states. outputs: the names of the nodes that it gives, in order.

    GraphError for a state whose next value was left out by a split.
    """
    lost = [state.name for state in states if state.node not in outputs]
    if lost:
        raise GraphError(
            f"what {', '.join(lost)} hold at the next call is left out by prepare.split; a state is kept in integers: "
            "cut the program behind it"
        )
    places = _places(states, outputs)
    return paired(
        graph,
        [
            Pair(state.input, place, state.initial, state.name)
            for state, place in zip(states, places, strict=True)
            if state.input in graph.by_name
        ],
    )


def _places(states: Sequence[Changed], outputs: Sequence[str]) -> list[Any]:
    """Where the next values stand: behind all else, unless a split has given the outputs another order."""
    nodes = [state.node for state in states]
    if list(outputs[len(outputs) - len(nodes) :]) == nodes:
        return list(range(len(outputs) - len(nodes), len(outputs)))
    return [list(outputs).index(node) for node in nodes]
