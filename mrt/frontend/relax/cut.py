"""What the bindings of a Relax function read and give, so that it can be read up to any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import tvm
from tvm import relax

from mrt.errors import GraphError
from mrt.frontend.shared.split import FileOperator

Key = tuple[str | int, ...]
"""A variable by its name, with the places of an item of the tuple that it is."""
_Tree = Union[Key, "list[_Tree]", None]
"""What an expression is made of: a key, a tuple of such as a list, None for a constant."""


@dataclass(frozen=True)
class Reads:
    """The operators of a function with what they read, its outputs, and the variables by their names."""

    operators: tuple[FileOperator, ...]
    outputs: tuple[Key, ...]
    variables: Mapping[str, Any]

    def needed(self, outputs: Sequence[Key]) -> frozenset[str]:
        """The names of the operators' variables that these outputs need."""
        read = {key[0] for key in outputs}
        for operator in reversed(self.operators):
            if operator.name in read:
                read.update(key[0] for key in operator.inputs)  # type: ignore[index]
        return frozenset(str(name) for name in read)


def reads_of(function: Any, names: Mapping[Any, str], kind: Any) -> Reads:
    """`names`: those of the variables; `kind`: gives what errors call the operator of a binding."""
    trees: dict[Any, _Tree] = {parameter: (names[parameter],) for parameter in function.params}
    variables = {names[parameter]: parameter for parameter in function.params}
    found: list[tuple[str, str, list[Key]]] = []
    for binding in bindings_of(function):
        value = binding.value
        if isinstance(value, tvm.ir.Call) or is_control(value):
            name = names[binding.var]
            variables[name] = binding.var
            trees[binding.var] = (name,)
            read = [key for argument in _arguments(value) for key in _keys(_tree(argument, trees))]
            found.append((name, kind(value), read))
        else:
            trees[binding.var] = _tree(value, trees)
    outputs = tuple(_keys(_tree(function.body.body, trees)))
    return Reads(tuple(_live(found, outputs)), outputs, variables)


def bindings_of(function: Any) -> Iterator[Any]:
    for block in function.body.blocks:
        yield from block.bindings


def is_control(expression: Any) -> bool:
    """Whether an expression is a branch, a function or a block of its own, which no graph holds."""
    return isinstance(expression, (relax.If, relax.Function, relax.SeqExpr))


def _arguments(expression: Any) -> Sequence[Any]:
    if isinstance(expression, tvm.ir.Call):
        return list(expression.args)
    return list(relax.analysis.free_vars(expression))


def _tree(expression: Any, trees: Mapping[Any, _Tree]) -> _Tree:
    if isinstance(expression, tvm.ir.Var):
        return trees.get(expression)
    if isinstance(expression, tvm.ir.Tuple):
        return [_tree(field, trees) for field in expression.fields]
    if isinstance(expression, tvm.ir.TupleGetItem):
        whole, place = _tree(expression.tuple_value, trees), int(expression.index)
        if isinstance(whole, list):
            if not 0 <= place < len(whole):
                raise GraphError(f"item {place} of a tuple of {len(whole)} is read; the module is malformed")
            return whole[place]
        return None if whole is None else (*whole, place)
    return None


def _keys(tree: _Tree) -> Iterator[Key]:
    if isinstance(tree, list):
        for item in tree:
            yield from _keys(item)
    elif tree is not None:
        yield tree


def _live(found: Sequence[tuple[str, str, list[Key]]], outputs: Sequence[Key]) -> list[FileOperator]:
    """The operators that the outputs need, in order."""
    read: dict[Any, set[Key]] = {}
    for key in outputs:
        read.setdefault(key[0], set()).add(key)
    live = []
    for name, kind, inputs in reversed(found):
        if name in read:
            given = sorted(read[name], key=lambda key: tuple(int(place) for place in key[1:]))
            live.append(FileOperator(name, kind, inputs, given))
            for key in inputs:
                read.setdefault(key[0], set()).add(key)
    return live[::-1]
