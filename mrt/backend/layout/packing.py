"""How parameters are laid out for the computes that read them, while compiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View, Walk
from mrt.backend.te.registry import Kind, add_once, kind_of, reads_whole
from mrt.symbol import Array, Interval, Symbol
from mrt.symbol.types import type_of

Packing = Callable[[Symbol, Array, "Surroundings"], "Packed | None"]
Forming = Callable[[Symbol, "Surroundings"], Any]
_Packing = TypeVar("_Packing", bound=Packing)

_Forming = TypeVar("_Forming", bound=Forming)

_PACKINGS: dict[tuple[str, int], Packing] = {}
_FORMS: dict[tuple[str, int], Forming] = {}


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
    """An input of a region's operator with its form: what holds a parameter, or the tensor that is computed."""

    def __init__(self, form: Any, views: Sequence[View]) -> None:
        self.form, self.views = form, tuple(views)


def packing(op: str, index: int) -> Callable[[_Packing], _Packing]:
    """Registers how a parameter that is input `index` of `op` is laid out for its compute, while compiling.

    The function takes (symbol, array, surroundings); None leaves the array as it would be without it. The compute gets
    an `Operand` if the packing has a form.
    """

    def register(function: _Packing) -> _Packing:
        add_once(_PACKINGS, (op, index), function, f"packings of input {index} of {op}")
        return function

    return register


def forming(op: str, index: int) -> Callable[[_Forming], _Forming]:
    """Registers what the compute of `op` must know of input `index`, be it computed or a parameter that is not packed.

    The function takes (symbol, surroundings) and gives a form; the compute gets an `Operand` of the one tensor.
    """

    def register(function: _Forming) -> _Forming:
        add_once(_FORMS, (op, index), function, f"forms of input {index} of {op}")
        return function

    return register


def form_computed(symbol: Symbol, index: int, surroundings: Surroundings) -> Packed | None:
    """The form of a computed tensor that is input `index` of `symbol`; None where its compute asks for none."""
    form = _FORMS.get((symbol.op, index))
    return None if form is None else Packed(form(symbol, surroundings), (), ())


def pack_parameter(symbol: Symbol, index: int, value: Array, surroundings: Surroundings) -> Packed:
    """How the compute of `symbol` gets a parameter that is its input `index`."""
    pack = _PACKINGS.get((symbol.op, index))
    packed = None if pack is None else pack(symbol, value, surroundings)
    form = _FORMS.get((symbol.op, index))
    if form is not None:
        return Packed.as_is(value, form(symbol, surroundings))
    return packed or laid_operand(symbol, index, value, surroundings.walk.inner)


def laid_operand(symbol: Symbol, index: int, value: Array, inner: int | None, form: Any = None) -> Packed:
    """The operand of an elementwise operator in the order of the result, whose axis `inner` is innermost.

    The padding holds 1, which divides. Anything else stays as it is.
    """
    missing = symbol.type.rank - value.ndim
    if inner is None or kind_of(symbol) is not Kind.ELEMENTWISE or reads_whole(symbol, index) or inner < missing:
        return Packed.as_is(value, form)
    axis = inner - missing
    if value.shape[axis] == 1:
        return Packed.as_is(value, form)
    storage = Storage.with_inner(type_of(value), axis)
    return Packed(form, (storage.lay(value, fill=1),), (storage,))
