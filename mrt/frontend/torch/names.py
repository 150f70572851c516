"""What a user's module calls the parts of an exported program: the keys of its outputs, its submodules, parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export.graph_signature import OutputKind, TensorArgument

from mrt.symbol import Graph


def output_titles(program: torch.export.ExportedProgram) -> list[str]:
    """For each tensor that forward() returns, in order, the keys that lead to it, such as "logits" or "boxes.0"; ""
    where it has a place alone, as in a tuple."""
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    titles = list(_titles(program.call_spec.out_spec, ()))
    if len(titles) != len(specs):
        titles = [""] * len(specs)
    return [title for title, spec in zip(titles, specs, strict=True) if isinstance(spec.arg, TensorArgument)]


def _titles(spec: Any, above: tuple[Any, ...]) -> Iterator[str]:
    children = () if spec is None else spec.children()
    if not children:
        yield ".".join(map(str, above)) if any(isinstance(key, str) for key in above) else ""
        return
    for key, child in zip(_keys(spec.context, len(children)), children, strict=True):
        yield from _titles(child, (*above, key))


def _keys(context: Any, count: int) -> list[Any]:
    """The keys of a mapping, the fields of a named tuple, or the places of anything else."""
    named = getattr(context, "_fields", context)
    is_named = isinstance(named, (list, tuple)) and len(named) == count and all(isinstance(key, str) for key in named)
    return list(named) if is_named else list(range(count))


def with_names(
    graph: Graph,
    program: torch.export.ExportedProgram,
    outputs: Sequence[str],
    titles: Mapping[str, Sequence[str]],
    called: Mapping[str, Sequence[str]],
) -> Graph:
    """The graph with what the module calls its outputs, and the symbols of its submodules and parameters.

    outputs: the nodes that the graph gives, in order. titles: by node, of each time that it is an output. called: the
    symbols of each node of the prepared program.
    """
    named: dict[str, tuple[str, ...]] = {}
    for symbol, node in zip(graph.outputs, outputs, strict=False):
        if any(titles.get(node, ())):
            named[symbol.name] = tuple(title or symbol.name for title in titles[node])
    return replace(graph, output_names=named, other_names=_parts(program, called))


def _parts(program: torch.export.ExportedProgram, called: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for node in program.graph.nodes:
        for path in _modules(node):
            found.setdefault(path, {}).update(dict.fromkeys(called.get(node.name, ())))
    for spec in program.graph_signature.input_specs:
        if spec.target:
            found.setdefault(spec.target, {})[spec.arg.name] = None
    return {path: tuple(symbols) for path, symbols in found.items() if symbols}


def _modules(node: Any) -> list[str]:
    """The paths of the modules that a node is in, the outermost first; a module called again is the same."""
    paths = (path.partition("@")[0] for path, *_ in node.meta.get("nn_module_stack", {}).values())
    return list(dict.fromkeys(filter(None, paths)))
