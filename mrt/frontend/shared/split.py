"""Cutting a file's graph before it is read, so that what follows the cut need not be covered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from mrt.errors import ConfigError, GraphError, UnsupportedOperatorError
from mrt.frontend.shared.final_selection import chooses, is_layer
from mrt.symbol import Graph


@dataclass(frozen=True)
class FileOperator:
    """One operator of a file. name: as its symbol would be called. kind: as the format calls the operator.

    inputs, outputs: what it reads and gives, by keys of the reader's own.
    """

    name: str
    kind: str
    inputs: Collection[Hashable]
    outputs: Collection[Hashable]


@dataclass(frozen=True)
class FileCut:
    """outputs: what crosses the cut, in order. left_out: the operators behind it. kept: those needed before."""

    outputs: tuple[Hashable, ...]
    left_out: tuple[FileOperator, ...]
    kept: tuple[FileOperator, ...]


def read_with_split(
    read: Callable[[Sequence[Any]], Graph],
    operators: Sequence[FileOperator],
    outputs: Sequence[Hashable],
    split: Sequence[str],
) -> Graph:
    """The graph that `read` makes for the file's outputs; where it cannot, and `split` names operators, of what is in
    front of those, whose outputs are then the tensors that cross the cut. Without `split` that is done with operators
    that end the network by a choice among its results, where all before them is read.

    operators: those that an output needs, in topological order. Raises what `read` does, and ConfigError for a name in
    `split` that matches none of them.
    """
    try:
        return read(outputs)
    except (GraphError, UnsupportedOperatorError) as error:
        names = split_names(operators, split) if split else _final_selections(operators, outputs)
        cut = cut_before(operators, outputs, names)
        if not names or not cut.outputs:
            raise
        try:
            graph = read(cut.outputs)
        except (GraphError, UnsupportedOperatorError):
            if split:
                raise
            raise error from None
        # What crosses and is known, such as a shape, is needed by nobody now.
        computed = [output for output in graph.outputs if not output.is_variable]
        if not computed:
            raise error
    needed = frozenset(graph.with_outputs(computed).symbols)
    return replace(
        graph,
        inputs=tuple(symbol for symbol in graph.inputs if symbol in needed),
        outputs=tuple(dict.fromkeys(computed)),
        left_out={operator.name: operator.kind for operator in cut.left_out},
    )


def _final_selections(operators: Sequence[FileOperator], outputs: Sequence[Hashable]) -> frozenset[str]:
    """The operators that choose among results at the end; none where a layer follows one, as one of regions."""
    names = frozenset(operator.name for operator in operators if chooses(operator.kind))
    behind = cut_before(operators, outputs, names).left_out if names else ()
    return frozenset() if any(is_layer(operator.kind) for operator in behind) else names


def split_names(operators: Sequence[FileOperator], split: Iterable[str]) -> frozenset[str]:
    """The names that `split` means; ConfigError for a name or pattern that matches none."""
    names = [operator.name for operator in operators]
    found: set[str] = set()
    for pattern in split:
        matches = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
        if not matches:
            nearest = ", ".join(get_close_matches(pattern, names, cutoff=0.0)) or "none, the model has no operators"
            raise ConfigError(
                f"prepare.split: {pattern!r} matches no operator of the model; the nearest names are {nearest}"
            )
        found |= matches
    return frozenset(found)


def cut_before(operators: Sequence[FileOperator], outputs: Sequence[Hashable], names: Collection[str]) -> FileCut:
    """The cut before the operators of these names: they and all that depends on them are behind it."""
    behind: set[Hashable] = set()
    left_out, before = [], []
    for operator in operators:
        if operator.name in names or not behind.isdisjoint(operator.inputs):
            left_out.append(operator)
            behind.update(operator.outputs)
        else:
            before.append(operator)
    needed_by = {key: place for place, key in reversed(list(enumerate(outputs)))}
    for operator in reversed(left_out):
        place = min(needed_by.get(key, len(outputs)) for key in operator.outputs)
        for source in operator.inputs:
            needed_by[source] = min(needed_by.get(source, len(outputs)), place)
    crossing = [key for operator in before for key in operator.outputs if key in needed_by]
    crossing.sort(key=needed_by.__getitem__)
    return FileCut(tuple(crossing), tuple(left_out), tuple(_needed(before, crossing)))


def _needed(operators: Sequence[FileOperator], outputs: Iterable[Hashable]) -> list[FileOperator]:
    needed, found = set(outputs), []
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            found.append(operator)
            needed.update(operator.inputs)
    return found


def first_of(operators: Sequence[FileOperator], uncovered: Mapping[str, Sequence[str]]) -> list[str]:
    """Those of the uncovered operators, by name, in front of which there is none."""
    names = {name for found in uncovered.values() for name in found}
    behind: set[Hashable] = set()
    first = []
    for operator in operators:
        is_behind = not behind.isdisjoint(operator.inputs)
        if operator.name in names and not is_behind:
            first.append(operator.name)
        if operator.name in names or is_behind:
            behind.update(operator.outputs)
    return first
