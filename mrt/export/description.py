"""What an exported file tells of its model: which one it is, and how its integers stand for real values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mrt.symbol import Graph
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.states import compact, states_of

FORMAT_VERSION = 1
"""The version of the format of the entries."""


def describe(
    digest: str,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    graph: Graph,
) -> dict[str, str]:
    """The description's entries by key, each a text.

    mrt.format_version   the version of these entries, 1
    mrt.digest           `digest`, the SHA-256 of the certificate
    mrt.inputs           JSON: for each input its name, shape, dtype, scale, zero_point, and lo and hi, its range
    mrt.outputs          JSON: the same of each output, in order
    mrt.states           JSON, where there are states: for each its input, the output that it holds in the next call,
                         and `initial`, its integers of one sample in the first call, one number if they are all alike

    graph: the integer graph, whose inputs and outputs these are, in order.
    """
    description = {
        "mrt.format_version": str(FORMAT_VERSION),
        "mrt.digest": digest,
        "mrt.inputs": json.dumps([entry.to_json() for entry in inputs]),
        "mrt.outputs": json.dumps([entry.to_json() for entry in outputs]),
    }
    states = stated_states(graph)
    if states:
        described = [
            {"input": inputs[s.input].name, "output": outputs[s.output].name, "initial": s.initial} for s in states
        ]
        description["mrt.states"] = json.dumps(described)
    return description


@dataclass(frozen=True)
class StatedState:
    """A state as files tell of it. input, output: places among those. initial: one number where all are alike, else
    nested lists of integers, of one sample."""

    input: int
    output: int
    initial: Any


def stated_states(graph: Graph) -> tuple[StatedState, ...]:
    """The states of an integer graph."""
    places = {symbol.name: place for place, symbol in enumerate(graph.inputs)}
    return tuple(StatedState(places[s.name], s.place, compact(s.first)) for s in states_of(graph))


NODE_FORMAT_VERSION = "__mrt_format_version__"
"""The attribute of an output's node that says of which version the attributes of nodes are."""


def describe_nodes(
    digest: str, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization]
) -> dict[str, dict[str, str]]:
    """The same as attributes of nodes, by the nodes' names, for files whose own entries do not last.

    __mrt_quantization__     JSON: what the entries say of this input or output; a list of it, in order, of a node for
                             which they say several things
    __mrt_digest__           of outputs, as mrt.digest
    __mrt_format_version__   of outputs, as mrt.format_version
    """
    stated: dict[str, list[Any]] = {}
    for entry in (*inputs, *outputs):
        entries, found = stated.setdefault(entry.name, []), entry.to_json()
        if found not in entries:
            entries.append(found)
    names = {entry.name for entry in outputs}
    identity = {"__mrt_digest__": digest, NODE_FORMAT_VERSION: str(FORMAT_VERSION)}
    return {
        name: {"__mrt_quantization__": json.dumps(entries[0] if len(entries) == 1 else entries)}
        | (identity if name in names else {})
        for name, entries in stated.items()
    }
