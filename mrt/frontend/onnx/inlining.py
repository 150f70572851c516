"""Functions that a model defines itself, put in place of the nodes that call them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import inliner

from mrt.errors import GraphError

_MOST_NODES = 100_000
"""So many nodes a model may stand for: functions that call each other may stand for any number."""

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def without_functions(model: onnx.ModelProto, title: str) -> onnx.ModelProto:
    """The model with its functions inlined.

    Raises GraphError where a function calls itself, or the model stands for more nodes than any network has.
    """
    if not model.functions:
        return model
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    counts = _counts(functions, title)
    total = sum(counts.get(_key(node), 1) for node in model.graph.node)
    if total > _MOST_NODES:
        raise GraphError(
            f"{title} calls functions that stand for {total} nodes; no network has more than {_MOST_NODES}"
        )
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # what the inliner raises on malformed functions is said nowhere
        reason = " ".join(str(error).split())
        raise GraphError(f"{title} has functions that cannot be put in place of their calls: {reason}") from None


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, node.overload


def _counts(functions: Mapping[_Key, onnx.FunctionProto], title: str) -> dict[_Key, int]:
    """How many nodes each function stands for."""
    counts: dict[_Key, int] = {}
    active: dict[_Key, Iterator[_Key]] = {}
    for start in functions:
        stack = [start] if start not in counts else []
        while stack:
            key = stack[-1]
            if key not in active:
                active[key] = (_key(node) for node in functions[key].node)
            called = next((name for name in active[key] if name in functions and name not in counts), None)
            if called is None:
                counts[key] = sum(counts.get(_key(node), 1) for node in functions[key].node)
                del active[key]
                stack.pop()
            elif called in active:
                raise GraphError(f"{title}: function {called[1]} calls itself; a graph has no recursion")
            else:
                stack.append(called)
    return counts
