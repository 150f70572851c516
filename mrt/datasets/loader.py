"""Samples that a function of the user's gives."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mrt.config import LoaderDataset
from mrt.datasets.dataset import Dataset, of_arrays, reason, single_input
from mrt.errors import DataError
from mrt.symbol import TensorType
from mrt.symbol.arrays import as_array


def read_loader(config: LoaderDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """What the function gives for the split, which is the last part of `name` where the configuration names none."""
    split = config.split or name.rpartition(".")[2]
    path, _, function = config.loader.rpartition(":")
    name = f"{name} ({config.loader})"
    with _importable(Path(path).parent):
        call = getattr(_imported(Path(path), name), function, None)
        if not callable(call):
            raise DataError(f"{name}: the file has no function {function}")
        try:
            result = call(split=split, **config.args)
        except (Exception, SystemExit) as error:
            raise DataError(f"{name}: the loader raised {reason(error)}") from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise DataError(f"{name}: the loader gave a {type(result).__name__}; the tuple (x, y) is needed")
    x, y = result
    arrays = x if isinstance(x, Mapping) else {single_input(inputs, name): x}
    return of_arrays(
        {key: as_array(value, f"{name}: the array for input {key}") for key, value in arrays.items()},
        None if y is None else as_array(y, f"{name}: y"),
        inputs,
        name,
    )


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Lets a loader import the modules beside it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _imported(path: Path, name: str) -> Any:
    if not path.is_file():
        raise DataError(f"{name}: {path} does not exist")
    alias = f"mrt_loader_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
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
