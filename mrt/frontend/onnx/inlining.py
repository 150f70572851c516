"""Functions that a model or ONNX itself defines, put in place of the nodes that call them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import inliner

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx.constants import FOLDABLE, is_standard
from mrt.frontend.onnx.node import find_converter

_MOST_NODES = 100_000
"""So many nodes a model may stand for: functions that call each other may stand for any number."""

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def without_functions(model: onnx.ModelProto, title: str) -> onnx.ModelProto:
    """The model with its functions inlined, and with operators that no converter reads and ONNX defines as a function.

    Raises GraphError where a function calls itself, or the model stands for more nodes than any network has.
    """
    inlined = _without_own_functions(model, title)
    for _ in range(_MOST_LEVELS):
        named = sorted({node.op_type for node in inlined.graph.node if _is_function_of_onnx(node)})
        if not named:
            return inlined
        inlined = _taken_apart(inlined, named, title)
    raise GraphError(f"{title}: {named} cannot be taken apart in {_MOST_LEVELS} steps")


_MOST_LEVELS = 8
"""Functions of ONNX stand for others at most so often."""


def _taken_apart(model: onnx.ModelProto, named: list[str], title: str) -> onnx.ModelProto:
    """The model with the operators of these names as ONNX defines them."""
    stated = onnx.ModelProto()
    stated.CopyFrom(model)
    for node in stated.graph.node:
        if node.op_type in named and is_standard(node):
            _check_given(node)
            _state_defaults(node)
    try:
        return inliner.inline_selected_functions(stated, [("", name) for name in named], inline_schema_functions=True)
    except Exception as error:  # what the inliner raises on malformed nodes is said nowhere
        reason = " ".join(str(error).split())
        raise GraphError(f"{title}: {', '.join(named)} cannot be taken apart: {reason}") from None


def _check_given(node: onnx.NodeProto) -> None:
    """UnsupportedOperatorError where an input is left out before one that is given, which the inliner cannot type."""
    names = list(node.input)
    while names and not names[-1]:
        names.pop()
    if "" in names:
        left_out = onnx.defs.get_schema(node.op_type).inputs[names.index("")].name
        raise UnsupportedOperatorError(
            f"{node.name or node.output[0]} ({node.op_type}): input {left_out} is left out before others; "
            "a tensor is needed there, such as a mask of zeros, or the operators that it stands for"
        )


def _state_defaults(node: onnx.NodeProto) -> None:
    """Adds the attributes that a node leaves out, which the inliner takes from nowhere else."""
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in onnx.defs.get_schema(node.op_type).attributes.items():
        if name not in given and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            node.attribute.append(attribute.default_value)


def _is_function_of_onnx(node: onnx.NodeProto) -> bool:
    """Whether a node is of an operator that is read by its meaning alone."""
    if not is_standard(node) or node.op_type in FOLDABLE or find_converter(node) is not None:
        return False
    if not onnx.defs.has(node.op_type):
        return False
    schema = onnx.defs.get_schema(node.op_type)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _without_own_functions(model: onnx.ModelProto, title: str) -> onnx.ModelProto:
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
