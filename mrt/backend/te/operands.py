"""What computes get for an input: a view, or an operand, which tells how a parameter was packed for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View, Walk
from mrt.symbol import Array, Interval
from mrt.symbol.types import type_of


@dataclass(frozen=True)
class FixedForm:
    """The form of a parameter that is packed in one way or not at all: its compute asks only whether it is."""


@dataclass(frozen=True)
class Packed:
    """A parameter as the compute of its reader wants it.

    form: hashable, what the compute must know of the layout; None for one array that is read like any tensor.
    arrays, storages: what is kept in memory, and how each array lies there.
    """

    form: Any
    arrays: tuple[Array, ...]
    storages: tuple[Storage, ...]

    @classmethod
    def as_is(cls, value: Array, form: Any = None) -> Packed:
        return cls(form, (value,), (Storage.plain(type_of(value)),))


@dataclass(frozen=True)
class Surroundings:
    """What decides how a parameter is packed. views: how the tensors beside it are read, None for parameters.

    walk: the order in which the reader's region is computed. bounds: what is known of the reader's inputs.
    """

    views: tuple[View | None, ...]
    machine: Machine
    walk: Walk
    bounds: tuple[Interval, ...]


class Operand:
    """An input of a region's operator with its form: the arrays of a packed parameter, or the computed tensor."""

    def __init__(self, form: Any, views: Sequence[View]) -> None:
        self.form, self.views = form, tuple(views)
