"""The structure of MRT's sources, read with `ast`: who imports whom, how long files and functions are."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDS = "mrt.symbol.operators"
"""The package of the operators' records."""


@dataclass(frozen=True)
class Source:
    """One file of Python, whose path counts from `root`."""

    path: str
    root: Path = ROOT

    @cached_property
    def text(self) -> str:
        return (self.root / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @cached_property
    def module(self) -> str:
        """As it is imported: a package is its `__init__.py`."""
        parts = Path(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if self.is_package else parts)

    def imports(self) -> Iterator[str]:
        """What is imported anywhere, in functions and under TYPE_CHECKING too; of `from a import b` it is `a.b`."""
        package = self.module if self.is_package else self.module.rpartition(".")[0]
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                yield from (f"{base}.{alias.name}" for alias in node.names)


def sources(*folders: str, root: Path = ROOT) -> list[Source]:
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [Source(path.relative_to(root).as_posix(), root) for path in paths]


def arrows(files: Sequence[Source]) -> dict[str, set[str]]:
    """From each module to those of `files` that it imports; a name taken from a module is an arrow to the module."""
    modules = {file.module for file in files}
    return {
        file.module: {m for name in file.imports() if (m := _module_of(name, modules)) and m != file.module}
        for file in files
    }


def _module_of(name: str, modules: set[str]) -> str:
    """`name`, or the module that defines it; empty where neither is among `modules`."""
    return next((m for m in (name, name.rpartition(".")[0]) if m in modules), "")


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of modules that reach each other, each sorted."""
    reached = {module: _reached(module, graph) for module in graph}
    found = {tuple(sorted(m for m in reached[module] if module in reached[m])) for module in graph}
    return sorted(list(circle) for circle in found if circle)


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def upward(graph: Mapping[str, set[str]], order: Sequence[str]) -> set[str]:
    """The arrows, as `from → to`, that do not point to a later line of `order`.

    A line names modules and packages that do not know each other; what is inside of a package is left alone. A name of
    which other names are parts stands for its `__init__.py` alone. Raises KeyError for a module that has no place.
    """
    lines = {name: number for number, line in enumerate(order) for name in line.split()}
    packages = [name for name in lines if not any(is_in(other, name) for other in lines if other != name)]
    places = {module: _place(module, lines, packages) for module in graph}
    arrows = ((module, target) for module, targets in graph.items() for target in targets)
    return {
        f"{module} → {target}"
        for module, target in arrows
        if places[module] != places[target] and lines[places[module]] >= lines[places[target]]
    }


def _place(module: str, names: Collection[str], packages: Sequence[str]) -> str:
    """The name that `module` is, or the longest of the packages that it is in."""
    if module in names:
        return module
    holding = [name for name in packages if is_in(module, name)]
    if not holding:
        raise KeyError(f"{module} has no place in the order")
    return max(holding, key=len)


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def within(graph: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    """The arrows between modules of `package`."""
    return {
        module: {target for target in targets if is_in(target, package)}
        for module, targets in graph.items()
        if is_in(module, package)
    }


def long_functions(file: Source, limit: int) -> list[str]:
    """As `path::Class.function`; a docstring does not count."""
    return [f"{file.path}::{name}" for name, node in _functions(file.tree, "") if _length(node) > limit]


Function = ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
"""What a function may stand in: no expression has one."""


def _functions(node: ast.AST, outer: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, STATEMENTS):
            continue
        name = f"{outer}{child.name}" if isinstance(child, (*Function.__args__, ast.ClassDef)) else ""
        if isinstance(child, Function):
            yield name, child
        yield from _functions(child, f"{name}." if name else outer)


def _length(node: Function) -> int:
    first = node.body[0]
    is_documented = ast.get_docstring(node, clean=False) is not None and first.end_lineno is not None
    docstring = first.end_lineno - first.lineno + 1 if is_documented else 0
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1 - docstring


def compares_names(file: Source) -> bool:
    """Whether the field `op`, an operator's name, is compared with anything or looked up in a list."""
    compared = (node for node in file.nodes if isinstance(node, ast.Compare))
    return any(
        isinstance(side, ast.Attribute) and side.attr == "op"
        for node in compared
        for side in (node.left, *node.comparators)
    )


def asks_for_records(file: Source) -> bool:
    """Whether `isinstance` is asked of a symbol's operator, or names the record of one."""
    records = {
        alias.asname or alias.name
        for node in file.nodes
        if isinstance(node, ast.ImportFrom) and node.module and is_in(node.module, RECORDS)
        for alias in node.names
    }
    for node in file.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked, kinds = node.args
            names = {name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)}
            if names & records or (isinstance(asked, ast.Attribute) and asked.attr == "operator"):
                return True
    return False
