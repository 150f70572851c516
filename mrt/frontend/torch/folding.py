"""Index and mask arithmetic that depends on no input, computed by torch before the program is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from mrt.errors import GraphError
from mrt.frontend.shared.refusals import MAX_MADE, check_size
from mrt.symbol import Array

_INDICES = (torch.bool, torch.int32, torch.int64)
"""Dtypes of positions and masks. Those that weights are stored in stay as they are: they have a scale."""
_RANDOM = torch.Tag.nondeterministic_seeded


def fold_indices(program: torch.export.ExportedProgram) -> None:
    """Replaces by constants what a functional program computes of constants alone, positions and masks, in place.

    1. A node of PyTorch's own operators is computed where it gives integers or truth values, whatever operators made
       them, such as a cumulated sum, a gather or comparisons of positions.
    2. Floats are left to the reader, which keeps the names of parameters, but for those that rule 1 needs.

    Raises GraphError where a result is larger than any constant of a network.
    """
    values = _Values(program)
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
    known = {node for node in program.graph.nodes if node.op == "placeholder" and node.name not in inputs}
    found: list[Any] = []
    for node in program.graph.nodes:
        if node.op == "call_function" and known.issuperset(node.all_input_nodes) and _is_computable(node):
            known.add(node)
            if getattr(node.meta.get("val"), "dtype", None) in _INDICES:
                found.append(node)
    folded = set(found)
    computed = {node: values.of(node) for node in found if not folded.issuperset(node.users)}
    for node, value in computed.items():
        node.replace_all_uses_with(_constant(program, node, value))
    program.graph.eliminate_dead_code()


def constant_indices(program: torch.export.ExportedProgram) -> dict[Any, Array]:
    """The values of the placeholders that are integer constants of a program."""
    stored = {**program.state_dict, **program.constants}
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    found: dict[Any, Array] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = stored.get(targets[node.name])
        if value is not None and value.dtype in _INDICES:
            found[node] = value.cpu().numpy()
    return found


class _Values:
    """The values of nodes that depend on no input, each computed once."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._stored = {**program.state_dict, **program.constants}
        self._targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
        self._found: dict[Any, Any] = {}

    def of(self, node: Any) -> Any:
        """The value of a node; GraphError where it, or what it is made of, is too large."""
        pending = [node]
        while pending:
            last = pending[-1]
            missing = [source for source in last.all_input_nodes if source not in self._found]
            if missing:
                pending += missing
                continue
            pending.pop()
            if last not in self._found:
                self._found[last] = self._computed(last)
        return self._found[node]

    def _computed(self, node: Any) -> Any:
        if node.op == "placeholder":
            return self._stored[self._targets[node.name]]
        given = node.meta.get("val")
        for item in given if isinstance(given, (tuple, list)) else (given,):
            if isinstance(item, torch.Tensor):
                check_size(f"{node.name} ({node.target})", item.shape, MAX_MADE)
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._found.__getitem__)
        try:
            with torch.no_grad():
                return node.target(*args, **kwargs)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise GraphError(f"{node.name} ({node.target}): cannot be computed on its constants: {reason}") from None


def _is_computable(node: Any) -> bool:
    """Whether a node's value is the same at every call: it is PyTorch's own, of known sizes, and draws no numbers."""
    if getattr(node.target, "__name__", "") == "getitem":
        return True
    if getattr(node.target, "namespace", "") != "aten" or _RANDOM in node.target.tags:
        return False
    if node.target.overloadpacket in (torch.ops.aten.empty, torch.ops.aten.empty_strided):
        return False
    given = node.meta.get("val")
    items: Sequence[Any] = given if isinstance(given, (tuple, list)) else (given,)
    return all(isinstance(item, torch.Tensor) and _is_static(item.shape) for item in items)


def _is_static(shape: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in shape)


def _constant(program: torch.export.ExportedProgram, node: Any, value: torch.Tensor) -> Any:
    """A placeholder of a new constant of the program, before all others."""
    first = next(iter(program.graph.find_nodes(op="placeholder")), None) or next(iter(program.graph.nodes))
    with program.graph.inserting_before(first):
        placeholder = program.graph.placeholder(f"c_{node.name}")
    placeholder.meta["val"] = node.meta["val"]
    spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder.name), placeholder.name)
    program.graph_signature.input_specs.insert(0, spec)
    program.constants[placeholder.name] = value.detach().contiguous().clone()
    return placeholder
