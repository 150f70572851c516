"""Object files of kernels, each by itself and named by what it was made of, so that it can be taken from a cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.target import codegen

from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.link.kernel_compiler import SETTINGS, KernelCompiler, as_object
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.machine import Machine
from mrt.plugins import GROUP as PLUGINS
from mrt.version import __version__

SYMBOL_DIGITS = 32
"""Of the digest of what a function was made of, in its symbol."""


@dataclass(frozen=True)
class KernelObject:
    """symbol: what the function is called in the object file `content`."""

    symbol: str
    content: bytes


@dataclass(frozen=True)
class KernelObjects:
    """Makes object files, or takes them from `cache`.

    What is made depends neither on the cache nor on what else is compiled.
    """

    cache: KernelCache | None = None

    def kernel(self, group: Mapping[str, Any], target: Any) -> dict[str, KernelObject]:
        """The object of every kernel of a group, by its name there."""
        made = {}
        for name, function in group.items():
            plain, base = function.without_attr("global_symbol"), re.sub(r"\d+$", "", name)
            content = _digest(base, str(target), tvm.ir.save_json(plain))
            symbol = f"{base}_{content[:SYMBOL_DIGITS]}"
            module = tvm.IRModule({symbol: plain.with_attr("global_symbol", symbol)})
            made[name] = KernelObject(symbol, self._object(content, module, target))
        return made

    def module(self, module: tvm.IRModule, target: Any) -> bytes:
        """The object of all functions of a module."""
        return self._object(_digest(str(target), tvm.ir.save_json(module)), module, target)

    def _object(self, content: str, module: tvm.IRModule, target: Any) -> bytes:
        """content: the digest of the module and the target."""
        key = _digest(_toolchain(), content)
        found = None if self.cache is None else self.cache.get(key)
        if found is None:
            with tvm.transform.PassContext(config=SETTINGS), target:
                found = as_object(tirx.build(module, target, KERNELS))
            if self.cache is not None:
                self.cache.put(key, found)
        return found

    def finish(self) -> None:
        """Keeps the cache within its size, once all objects are made."""
        if self.cache is not None:
            self.cache.trim()


def object_compiler(machine: Machine, objects: KernelObjects) -> KernelCompiler:
    """What compiles each kernel to an object file of its own."""
    return KernelCompiler(machine, objects.kernel, size=1)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@lru_cache(maxsize=1)
def _toolchain() -> str:
    """The digest of what makes machine code: of TVM and LLVM, and of MRT's back end, which lowers its own operators.

    A library that was built anew has another size or time, whatever its version is; packages may lower operators too.
    """
    libraries = sorted((Path(tvm.__file__).parent / "lib").glob("*.so"))
    facts = {
        "versions": (__version__, tvm.__version__, codegen.llvm_version_major()),
        "libraries": [(path.name, (found := path.stat()).st_size, found.st_mtime_ns) for path in libraries],
        "settings": SETTINGS,
        "plug-ins": sorted(
            (point.name, point.value, point.dist.version if point.dist else "") for point in entry_points(group=PLUGINS)
        ),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
