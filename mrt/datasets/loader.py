"""Samples that a function of the user's gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mrt.config import LoaderDataset
from mrt.datasets.choice import chosen
from mrt.datasets.dataset import Dataset, of_arrays, reason, single_input
from mrt.datasets.functions import imported_function
from mrt.errors import DataError
from mrt.symbol import Array, TensorType
from mrt.symbol.arrays import as_array

Samples = tuple[Mapping[str, Array], "Array | None"]
"""The arrays by input name, and the labels."""


def read_loader(config: LoaderDataset, inputs: Mapping[str, TensorType], name: str, most: int | None = None) -> Dataset:
    """What the function gives for the split, which is the last part of `name` where the configuration names none.

    most: after how many samples no further batch is drawn where it gives batches; by default, those that are asked for.
    """
    split = config.split or name.rpartition(".")[2]
    call = function_of(config, name)
    name = f"{name} ({config.loader})"
    options = {**config.args, "split": split} if takes_split(call) else config.args
    try:
        given = call(**options)
        batches = _as_batches(given, most or _needed(config), inputs, name)
    except DataError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(f"{name}: the loader raised {reason(error)}") from error
    x, y = _samples(given, inputs, name) if batches is None else _joined(batches, name)
    whole = of_arrays(x, y, inputs, name)
    if config.shuffle is None and config.slice == (0, None):
        return whole
    places = chosen(config, whole.size, name)
    return of_arrays({key: x[key][places] for key in x}, None if y is None else y[places], inputs, name)


def function_of(config: LoaderDataset, name: str) -> Callable[..., Any]:
    """The function that a loader names; DataError where there is none."""
    path, _, function = config.loader.rpartition(":")
    return imported_function(Path(path), function, name)


def takes_split(call: Callable[..., Any]) -> bool:
    """Whether a function is told which of calibration, validation and test is asked for."""
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):  # of what is called otherwise than by a function of Python
        return True
    return "split" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _needed(config: LoaderDataset) -> int | None:
    """How many of the first samples are asked for at most; None for all."""
    start, stop = config.slice
    ends = [end for end in (stop, config.samples and start + config.samples) if end]
    return min(ends) if ends and config.shuffle is None else None


def _as_batches(given: Any, most: int | None, inputs: Mapping[str, TensorType], name: str) -> list[Samples] | None:
    """The batches of `most` samples and no more, where they are given as a loader of PyTorch or a generator does, or as
    a list of arrays; None for anything else. Raises what drawing them raises."""
    if isinstance(given, (tuple, Mapping, str)) or hasattr(given, "__array__") or not hasattr(given, "__iter__"):
        return None
    if isinstance(given, list) and not (given and _is_batch(given[0])):
        return None
    return list(_until(most, given, inputs, name))


def _is_batch(value: Any) -> bool:
    return isinstance(value, (tuple, Mapping)) or hasattr(value, "__array__")


def _until(most: int | None, given: Iterable[Any], inputs: Mapping[str, TensorType], name: str) -> Iterator[Samples]:
    count = 0
    for batch in given:
        # PyTorch's loaders make a list of what is a tuple in a dataset.
        x, y = _samples(tuple(batch) if isinstance(batch, list) and len(batch) == 2 else batch, inputs, name)
        if isinstance(batch, Mapping):
            x = {key: array for key, array in x.items() if key in inputs}
        yield x, y
        count += min((len(array) for array in x.values() if array.ndim), default=0)
        if most is not None and count >= most:
            return


def _samples(given: Any, inputs: Mapping[str, TensorType], name: str) -> Samples:
    """x and y, or x alone."""
    if isinstance(given, tuple) and len(given) == 2:
        x, y = given
    elif isinstance(given, Mapping) or hasattr(given, "__array__"):
        x, y = given, None
    else:
        raise DataError(
            f"{name}: the loader gave a {type(given).__name__}; the tuple (x, y), an array, arrays by input name, or "
            f"batches of such are needed"
        )
    arrays = x if isinstance(x, Mapping) else {single_input(inputs, name): x}
    return (
        {key: as_array(value, f"{name}: the array for input {key}") for key, value in arrays.items()},
        None if y is None else as_array(y, f"{name}: y"),
    )


def _joined(batches: list[Samples], name: str) -> Samples:
    """The samples of all batches; DataError where these do not fit each other."""
    if not batches:
        raise DataError(f"{name}: the loader gave no batches")
    xs, ys = [x for x, _ in batches], [y for _, y in batches if y is not None]
    try:
        x = {key: np.concatenate([each[key] for each in xs]) for key in xs[0]}
        return x, np.concatenate(ys) if len(ys) == len(xs) else None
    except (KeyError, ValueError) as error:
        raise DataError(f"{name}: the batches differ in more than their number of samples: {error}") from None
