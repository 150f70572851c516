"""Functions of the user's, in Python files: they may import what lies beside them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mrt.datasets.dataset import reason
from mrt.errors import DataError


def imported_function(path: Path, function: str, name: str) -> Callable[..., Any]:
    """The function of a Python file, called with the modules beside that importable; DataError where there is none.

    name: the key or option that names it, for messages.
    """
    with importable(path.parent):
        call = getattr(_imported(path, f"{name} ({path}:{function})"), function, None)
    if not callable(call):
        raise DataError(f"{name} ({path}:{function}): the file has no function {function}")
    found: Callable[..., Any] = call

    @functools.wraps(found)
    def called(*args: Any, **options: Any) -> Any:
        with importable(path.parent):
            return found(*args, **options)

    return called


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Lets a file import the modules beside it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _imported(path: Path, name: str) -> Any:
    if not path.is_file():
        raise DataError(f"{name}: {path} does not exist")
    alias = f"mrt_function_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise DataError(f"{name}: {path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[alias]
        raise DataError(f"{name}: importing the file raised {reason(error)}") from error
    return module
