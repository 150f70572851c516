"""Object files for this process: whether they can be linked and loaded, so that kernels may come from the cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.link.kernel_objects import KernelObjects
from mrt.backend.machine import Machine
from mrt.errors import CompilationError
from mrt.runtime import THIS_MACHINE


def loadable_objects() -> KernelObjects | None:
    """What makes object files, or takes them from the user's cache; None without a cache, and where nothing links them
    or the folder of temporary files holds no code that may be executed. Raises what `KernelCache.usual` raises.
    """
    cache = KernelCache.usual()
    return KernelObjects(cache) if cache is not None and _is_linked() and _is_executed() else None


def recalling(objects: KernelObjects | None, machine: Machine) -> Callable[[str, Any, Callable[[], Any]], Any]:
    """What gives the function of a name and a key for a machine: see `KernelObjects.function`."""
    if objects is None:
        return lambda name, key, make: make()
    return lambda name, key, make: objects.function(name, key, machine, make)


def _is_linked() -> bool:
    try:
        THIS_MACHINE.command()
    except CompilationError:
        return False
    return True


def _is_executed() -> bool:
    try:
        return not os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC
    except OSError:
        return False
