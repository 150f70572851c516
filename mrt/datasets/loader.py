"""Samples that a function of the user's gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mrt.config import LoaderDataset
from mrt.datasets.dataset import Dataset, of_arrays, reason, single_input
from mrt.datasets.functions import imported_function
from mrt.errors import DataError
from mrt.symbol import TensorType
from mrt.symbol.arrays import as_array


def read_loader(config: LoaderDataset, inputs: Mapping[str, TensorType], name: str) -> Dataset:
    """What the function gives for the split, which is the last part of `name` where the configuration names none."""
    split = config.split or name.rpartition(".")[2]
    path, _, function = config.loader.rpartition(":")
    call = imported_function(Path(path), function, name)
    name = f"{name} ({config.loader})"
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
