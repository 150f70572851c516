"""Samples as loaders yield them: arrays and tensors, pairs with labels, mappings by the names of inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mrt.errors import DataError
from mrt.messages import short
from mrt.symbol import Array
from mrt.symbol.arrays import as_array, named_inputs

NEEDED = (
    "arrays of samples are needed, axis 0 the batch, or mappings of input names to such arrays; in a pair labels may "
    "follow: (x, y)"
)
LABELS = ("labels", "label", "targets", "target", "y")
"""Keys of a mapping that hold labels, unless an input is called so."""


def batches_in(data: object, name: str = "batches") -> Iterable[Any]:
    """The batches that `data` is: many, or one; DataError where it is neither."""
    if isinstance(data, Mapping) or hasattr(data, "__array__"):
        return (data,)
    if _is_dataset(data):
        raise DataError(
            f"{name} is a {type(data).__name__} of single samples, which have no batch axis; give "
            f"torch.utils.data.DataLoader(dataset, batch_size=16)"
        )
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise DataError(f"{name} is {short(data)} ({type(data).__name__}); {NEEDED}")
    return data


def _is_dataset(data: object) -> bool:
    """Whether it is a dataset of PyTorch whose items are samples; PyTorch is not loaded to know."""
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(data, torch.Dataset) and not isinstance(data, torch.IterableDataset)


def first_of(batches: Iterable[Any], name: str = "batches") -> Any:
    """The first batch; DataError where there is none."""
    for batch in batches:
        return batch
    raise DataError(f"{name} is empty; at least one batch is needed")


def first_in(data: object) -> Callable[[], Any] | None:
    """Gives the first batch of `data`; None where that would be lost by looking at it."""
    return None if isinstance(data, Iterator) else lambda: first_of(batches_in(data, "data"), "data")


def count_of(data: object) -> int:
    """How many samples there are, as far as that is known without reading them; 0 where it is not."""
    try:
        if isinstance(data, (list, tuple)):
            return sum(map(_samples_in, data))
        if isinstance(data, Mapping) or hasattr(data, "__array__"):
            return _samples_in(data)
        return len(data.dataset)  # type: ignore[attr-defined]  # a DataLoader of PyTorch
    except Exception:  # whatever a foreign object raises: no more than a progress bar depends on it
        return 0


def _samples_in(batch: Any) -> int:
    while isinstance(batch, (Mapping, list, tuple)) and batch and not hasattr(batch, "__array__"):
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return len(batch)


def parts_of(batch: Any, names: Sequence[str], where: str) -> tuple[Any, Any]:
    """The inputs of a batch, an array or a mapping by input name, and its labels; None where there are none.

    1. A mapping holds arrays by the names of inputs; a key of LABELS that is no input holds labels.
    2. Of a pair (mapping, labels) or (sequence of arrays, labels) each part is what it looks like.
    3. A sequence of arrays holds one for each input, in order, and labels if there is one more.
    4. Anything else is the array of the only input.

    Raises DataError naming the batch for what is none of these.
    """
    if isinstance(batch, Mapping):
        given = [key for key in batch if key in names or key not in LABELS]
        labels = next((value for key, value in batch.items() if key not in given), None)
        return {key: batch[key] for key in given}, labels
    if batch is None or isinstance(batch, (str, bytes)) or (isinstance(batch, (tuple, list)) and not batch):
        raise DataError(f"{where} is a {type(batch).__name__}; {NEEDED}")
    if not isinstance(batch, (tuple, list)) or (isinstance(batch, list) and not _holds_arrays(batch)):
        return batch, None
    if len(batch) == 2 and isinstance(batch[0], (Mapping, tuple, list)) and _holds_arrays(batch[0]):
        return parts_of(batch[0], names, where)[0], batch[1]
    if len(batch) not in (len(names), len(names) + 1):
        raise DataError(
            f"{where} is a {type(batch).__name__} of {len(batch)} parts; one for each of the inputs {list(names)} is "
            f"needed, and labels may follow"
        )
    inputs = dict(zip(names, batch, strict=False))
    return inputs, batch[len(names)] if len(batch) > len(names) else None


def _holds_arrays(batch: Any) -> bool:
    """Whether a batch consists of arrays, as loaders give inputs and labels, and is not one of numbers."""
    parts = batch.values() if isinstance(batch, Mapping) else batch
    return any(getattr(part, "ndim", 0) or isinstance(part, (Mapping, tuple)) for part in parts)


def arrays_of(inputs: Any, names: Sequence[str], where: str) -> dict[str, Array]:
    """The arrays by input name; DataError for missing or unknown names, and for what is no array."""
    try:
        given = named_inputs(inputs, names)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return {name: as_array(x, f"{where}: input {name}") for name, x in given.items()}
