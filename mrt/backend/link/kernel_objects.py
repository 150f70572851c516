"""Object files of kernels, each by itself and named by what it was made of, so that it can be taken from a cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import entry_points
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target import codegen

from mrt.backend.kernels.generic.prefetch_next_kernel import prefetching_steps
from mrt.backend.kernels.x86.amx.instructions import needs_tiles
from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.link.kernel_compiler import SETTINGS, KernelCompiler, as_object
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.link.plain_text import plain_text
from mrt.backend.machine import Machine
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import constant
from mrt.plugins import GROUP as PLUGINS
from mrt.version import __version__

SYMBOL_DIGITS = 32
"""Of the digest of a function and its target, in its symbol."""
ROOMS = "backend", "runtime", "symbol"
"""Of MRT, by whose sources machine code is what it is: the runtime has the names of a module's functions, and its
facts."""
KEYS = "[0-9a-f]{64}"
MADE_OF, RECALLED = "mrt.made_of", "mrt.recalled"
"""Attributes of functions: the digest of what one was made of; that of the function for which one stands."""


@dataclass(frozen=True)
class KernelObject:
    """symbol: what the function is called in the object file `content`."""

    symbol: str
    content: bytes


@dataclass(frozen=True, eq=False)
class KernelObjects:
    """Makes object files, or takes them from `cache`.

    What is made depends neither on the cache nor on what else is compiled.
    """

    cache: KernelCache | None = None
    _recalled: dict[str, bytes] = field(default_factory=dict)
    """The objects of the functions that need not be made, by the digest of what these were."""
    _made: dict[str, Future[bytes]] = field(default_factory=dict)
    _count: Iterator[int] = field(default_factory=count)

    def function(self, name: str, key: Any, machine: Machine, make: Callable[[], Any]) -> Any:
        """The function that `make` makes, or one that stands for it, whose object the cache holds.

        key: with the name and the machine, all that the function depends on. What stands for it asks for tiles, and
        prefetches in so many steps, as it does.
        """
        text = plain_text((name, key, machine_facts(machine)))
        # TVM takes equal functions for one, and could not tell that one is equal to another which is not made.
        made_of = f"function {next(self._count)}" if text is None else _digest(MADE_OF, text)
        fact = None if text is None else self._known(made_of)
        return (make() if fact is None else _stand_in(fact)).with_attr(MADE_OF, made_of)

    def _known(self, made_of: str) -> _Fact | None:
        """What the cache knows of a function, if it holds the object too."""
        held = None if self.cache is None else self.cache.get(made_by_this(made_of))
        if self.cache is None or held is None:
            return None
        fact = _Fact(**json.loads(held))
        content = self.cache.get(made_by_this(fact.content))
        if content is None:
            return None
        self._recalled[fact.content] = content
        return fact

    def kernel(self, group: Mapping[str, Any], target: Any) -> dict[str, KernelObject]:
        """The object of every kernel of a group, by its name there."""
        return {name: self._kernel(_Named.of(name, function, target), target) for name, function in group.items()}

    def _kernel(self, named: _Named, target: Any) -> KernelObject:
        if _attribute(named.function, RECALLED) is not None:
            return KernelObject(named.symbol, self._recalled[named.content])
        plain = _plain(named.function).with_attr("global_symbol", named.symbol)
        made = self._object(named.content, tvm.IRModule({named.symbol: plain}), target)
        self._note(named.function, named.content)
        return KernelObject(named.symbol, made)

    def _note(self, function: Any, content: str) -> None:
        """Has the cache know what the function of an object was made of."""
        made_of = _stated(function)
        if self.cache is not None and made_of is not None:
            fact = _Fact(content, prefetching_steps(function), needs_tiles(function))
            self.cache.put(made_by_this(made_of), json.dumps(asdict(fact)).encode())

    def module(self, module: tvm.IRModule, target: Any) -> bytes:
        """The object of all functions of a module."""
        return self._object(_digest(str(target), tvm.ir.save_json(module)), module, target)

    def _object(self, content: str, module: tvm.IRModule, target: Any) -> bytes:
        """content: the digest of the module and the target, of which equal ones are made once."""
        mine: Future[bytes] = Future()
        theirs = self._made.setdefault(content, mine)
        if theirs is not mine:
            return theirs.result()
        try:
            mine.set_result(self._found_or_compiled(content, module, target))
        except BaseException as error:
            mine.set_exception(error)
        return mine.result()

    def _found_or_compiled(self, content: str, module: tvm.IRModule, target: Any) -> bytes:
        key = made_by_this(content)
        found = None if self.cache is None else self.cache.get(key)
        if found is None:
            with tvm.transform.PassContext(config=SETTINGS), target:
                found = as_object(tirx.build(module, target, KERNELS))
            if self.cache is not None:
                self.cache.put(key, found)
        return found


def symbol_of(name: str, function: Any, target: Any) -> str:
    """What `KernelObjects.kernel` calls a function, known before it is compiled."""
    return _Named.of(name, function, target).symbol


def machine_facts(machine: Machine) -> tuple[Any, ...]:
    """All of a machine that code depends on, as plain data."""
    widths = machine.vector_bits, machine.registers, machine.threads
    return str(machine.target), *widths, machine.is_serial, machine.features


def object_compiler(machine: Machine, objects: KernelObjects) -> KernelCompiler:
    """What compiles each kernel to an object file of its own."""
    return KernelCompiler(machine, objects.kernel, size=1)


@dataclass(frozen=True, eq=False)
class _Named:
    """A function, and its symbol. content: the digest of the function and its target."""

    function: Any
    content: str
    symbol: str

    @classmethod
    def of(cls, name: str, function: Any, target: Any) -> _Named:
        base = re.sub(r"\d+$", "", name)
        recalled = _attribute(function, RECALLED)
        content = recalled or _digest(base, str(target), _stated(function) or tvm.ir.save_json(_plain(function)))
        return cls(function, content, f"{base}_{content[:SYMBOL_DIGITS]}")


@dataclass(frozen=True)
class _Fact:
    """content: the digest of a function and its target. steps: in how many it prefetches. tiles: whether it asks for
    tile registers."""

    content: str
    steps: int
    tiles: bool


def _stand_in(fact: _Fact) -> Any:
    """A function of which all that is asked before it is compiled is true of the one that `fact` is about."""
    nothing = tirx.Evaluate(constant(0, "int32"))
    body = nothing
    if fact.steps:
        marks = {Hint.PREFETCH_NEXT: True}
        body = tirx.For(tirx.Var("step", "int32"), 0, fact.steps, tirx.ForKind.SERIAL, nothing, annotations=marks)
    function = tirx.PrimFunc([], body).with_attr(RECALLED, fact.content)
    return function.with_attr(Hint.TILES, True) if fact.tiles else function


def _plain(function: Any) -> Any:
    """A function without what only names it."""
    return function.without_attr("global_symbol").without_attr(MADE_OF)


def _attribute(function: Any, name: str) -> str | None:
    return str(function.attrs[name]) if function.attrs and name in function.attrs else None


def _stated(function: Any) -> str | None:
    """The digest of what a function was made of, much shorter than the function; None where that is not known."""
    made_of = _attribute(function, MADE_OF)
    return made_of if made_of is not None and re.fullmatch(KEYS, made_of) else None


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def made_by_this(*parts: str) -> str:
    """The key in a cache of what is made of `parts`, by this very compiler."""
    return _digest(_toolchain(), *parts)


@lru_cache(maxsize=1)
def _toolchain() -> str:
    """The digest of what makes machine code: of TVM and LLVM, and of MRT's operators, back end and runtime.

    A library that was built anew has another size or time, whatever its version is; packages may lower operators too.
    """
    libraries = sorted((Path(tvm.__file__).parent / "lib").glob("*.so"))
    facts = {
        "versions": (__version__, np.__version__, tvm.__version__, codegen.llvm_version_major()),
        "libraries": [(path.name, (found := path.stat()).st_size, found.st_mtime_ns) for path in libraries],
        "settings": SETTINGS,
        "plug-ins": sorted(
            (point.name, point.value, point.dist.version if point.dist else "") for point in entry_points(group=PLUGINS)
        ),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    root = Path(__file__).parents[2]
    for path in sorted(path for room in ROOMS for path in root.glob(f"{room}/**/*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
