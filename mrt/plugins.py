"""The one door for packages that bring operators, formats or algorithms: the entry points `mrt.plugins`."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mrt.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mrt.plugins"

PARTS = ("operators", "formats", "algorithms", "expansions", "computes")
"""What an entry point may be called, which says what it registers."""
PARTS_OF_FORMATS = {"converters": "frontend", "exporters": "export"}
"""The same for the formats that MRT has such folders for: `converters.onnx` is what mrt/frontend/onnx/converters is."""

_lock = threading.RLock()
_asked_for: dict[str, PluginError | None] = {}
"""The parts that were asked for, each with what failed."""
_loaded: set[str] = set()


def packages() -> tuple[str, ...]:
    """The installed packages with entry points, each with its version; PluginError as `load_plugins`."""
    found = {point.dist.name: point.dist.version for point in _entry_points() if point.dist is not None}
    return tuple(f"{name} {version}" for name, version in found.items())


def load_plugins(part: str) -> None:
    """Has every installed package register its `part`, once; other threads wait until that is done.

    An entry point names a module, which is imported, or a function in one, which is called without arguments. Only
    those of `part` are touched: who verifies a model does not load what compiles it.
    Raises PluginError, each time anew, naming the package and the entry point, where one fails or is not known.
    """
    if part in _loaded:
        return
    with _lock:
        if part not in _asked_for:
            # Noted first: what registers may look up what is registered.
            _asked_for[part] = None
            try:
                for point in _entry_points():
                    if point.name == part:
                        _register(point)
            except PluginError as error:
                _asked_for[part] = error
            else:
                _loaded.add(part)
        failed = _asked_for[part]
        if failed is not None:
            raise PluginError(str(failed)) from failed.__cause__


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    """Those of all installed packages, in the order of the packages' names; PluginError for one that is not known."""
    from importlib.metadata import entry_points

    points = tuple(sorted(entry_points(group=GROUP), key=lambda point: (_package(point), point.name)))
    if not points:
        raise PluginError(f"no installed package has entry points {GROUP}, not even MRT: install it with pip")
    for point in points:
        if not _is_part(point.name):
            *first, last = (*PARTS, *(f"{part}.FORMAT" for part in PARTS_OF_FORMATS))
            raise PluginError(f"{_title(point)} is called {point.name}; {', '.join(first)} or {last} is needed")
    return points


def _is_part(name: str) -> bool:
    kind, _, format = name.partition(".")
    if kind not in PARTS_OF_FORMATS:
        return name in PARTS
    return format.isidentifier() and (Path(__file__).parent / PARTS_OF_FORMATS[kind] / format / kind).is_dir()


def _register(point: EntryPoint) -> None:
    try:
        found = point.load()
        if callable(found):
            found()
    except Exception as error:  # whatever the code of others raises
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"{_title(point)} fails: {reason}; update or uninstall the package") from error
    if not callable(found) and not isinstance(found, ModuleType):
        kind = type(found).__name__
        raise PluginError(f"{_title(point)} is of type {kind}; a module, or a function without arguments, is needed")


def _title(point: EntryPoint) -> str:
    return f"package {_package(point)}: its entry point `{point.name} = {point.value}` of {GROUP}"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "?"
