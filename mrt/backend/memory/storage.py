"""How tensors lie in memory: which axis is innermost, how far it is padded, what stands around and what is added.

The graph's layout is the user's; this one is the backend's. Computes read and write logical elements; a `View` says
where in memory each of them is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import ir, tirx

from mrt.backend.tir.expressions import CHOICE, Expression, Tensor, constant, ravel, unravel
from mrt.symbol import Array, TensorType

VECTOR = 16
"""Elements to which an innermost axis is padded: the 32-bit lanes of the widest vectors."""
FEW = 4
"""So many channels, of a tensor that no vectors are stored to, are padded to whole dots only."""
DOT_DEPTH = 4
"""Channels of the deepest dot."""
BYTES = ("int8", "uint8")
SIGN = 128
"""Adding it to a byte, or taking it off, turns the highest bit over."""


def channels_of(rank: int) -> int:
    """The axis that is innermost as a rule: of maps that of channels, else the last one."""
    return 1 if rank > 3 else rank - 1


def padded_length(count: int, dotted: bool = False) -> int:
    """To how many elements an innermost axis is padded: to whole vectors, or, if no dots store to it, few to a dot."""
    multiple = DOT_DEPTH if count <= FEW and not dotted else VECTOR
    return -(-count // multiple) * multiple


@dataclass(frozen=True)
class Storage:
    """The memory of a tensor of `type`.

    inner: the axis that is innermost, the others standing before it in their order; None is the graph's own order.
    length: of the innermost axis in memory, padding included; what its padding holds is never read as a value.
    before, after: how many positions of border stand around the tensor along each logical axis; border: their value.
    Along the innermost axis they are not border but other tensors, which share its memory; of a `part`, so they are
    along every axis that is cut.
    bordered: whether its memory has a border at all, be it part of the tensor, as it is of a Pad.
    dtype, offset: memory holds value + offset in this dtype.
    """

    type: TensorType
    inner: int | None = None
    length: int = 0
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    border: int | float = 0
    bordered: bool = False
    dtype: str = ""
    offset: int = 0

    @classmethod
    def plain(cls, type: TensorType) -> Storage:
        """Row by row in the graph's order."""
        zeros = (0,) * type.rank
        return cls(type, None, type.shape[-1] if type.rank else 0, zeros, zeros, dtype=type.dtype)

    @classmethod
    def with_inner(cls, type: TensorType, inner: int, length: int = 0) -> Storage:
        """The axis `inner` innermost and padded to `length`, by default to whole vectors."""
        return replace(cls.plain(type), inner=inner, length=length or -(-type.shape[inner] // VECTOR) * VECTOR)

    def permuted(self, axes: Sequence[int]) -> Storage | None:
        """The same memory read as the transpose whose axis i is axis axes[i]; None where no storage describes it."""
        if not axes:
            return self
        shape = tuple(self.type.shape[axis] for axis in axes)
        transposed = replace(
            self,
            type=replace(self.type, shape=shape),
            inner=axes.index(self.order[-1]),
            before=tuple(self.before[axis] for axis in axes),
            after=tuple(self.after[axis] for axis in axes),
            bordered=not self.is_flat,
        )
        return transposed if transposed.order == tuple(axes.index(axis) for axis in self.order) else None

    @property
    def order(self) -> tuple[int, ...]:
        """The logical axes in the order of memory."""
        axes = range(self.type.rank)
        return tuple(axes) if self.inner is None else (*(a for a in axes if a != self.inner), self.inner)

    @property
    def is_plain(self) -> bool:
        """Whether memory is that of `Storage.plain`."""
        plain = Storage.plain(self.type)
        last = self.type.rank - 1
        return self.shape == plain.shape and replace(self, inner=None) == plain and self.inner in (None, last)

    @property
    def has_border(self) -> bool:
        return any(self.before[axis] or self.after[axis] for axis in self.order[:-1])

    @property
    def is_flat(self) -> bool:
        """Whether all positions are one axis in memory: neither the graph's order nor a border tells them apart."""
        return self.inner is not None and not self.bordered

    @property
    def is_one_run(self) -> bool:
        """Whether its own positions are all that are on this one axis."""
        return self.is_flat and not self.has_border

    @property
    def positions(self) -> tuple[int, ...]:
        """The lengths of the axes before the innermost one."""
        return tuple(self.type.shape[axis] for axis in self.order[:-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths in memory."""
        whole = self._apart
        return (math.prod(whole[:-1]), whole[-1]) if self.is_flat else whole

    @property
    def _apart(self) -> tuple[int, ...]:
        """The lengths in memory, each axis for itself."""
        extra = [self.before[axis] + self.after[axis] for axis in self.order]
        return tuple(n + e for n, e in zip(self.core, extra, strict=True))

    @property
    def pitch(self) -> int:
        """Of one run along the innermost axis, what other tensors have of it included."""
        return self.before[self.order[-1]] + self.length + self.after[self.order[-1]]

    @property
    def depth(self) -> int:
        """Channels that dots read at one position: whole vectors, of which others may follow where it is a part.

        Weights are 0 for all that are not its own.
        """
        last = self.order[-1]
        whole = -(-self.type.shape[last] // VECTOR) * VECTOR
        return self.length if self.pitch == self.length else min(whole, self.length + self.after[last])

    def part(self, type: TensorType, begin: Sequence[int]) -> Storage:
        """The memory of a tensor that is this one's from the index `begin` on.

        It has the padding of the innermost axis if it reaches the end of it, else what others have there.
        """
        last = self.order[-1]
        lengths = {axis: type.shape[axis] for axis in self.order}
        left = {axis: self.type.shape[axis] - begin[axis] - lengths[axis] for axis in self.order}
        length = lengths[last] if left[last] else self.length - begin[last]
        left[last] = self.length - begin[last] - length
        return replace(
            self,
            type=type,
            length=length,
            before=tuple(n + first for n, first in zip(self.before, begin, strict=True)),
            after=tuple(n + left[axis] for axis, n in enumerate(self.after)),
        )

    @property
    def core(self) -> tuple[int, ...]:
        """The lengths without the border, each axis for itself."""
        return (*self.positions, self.length) if self.type.rank else ()

    def places(self, at: Sequence[Expression]) -> list[Expression]:
        """Where in memory the element at a logical index is."""
        apart = [at[axis] + self.before[axis] if self.before[axis] else at[axis] for axis in self.order]
        if self.is_flat:
            return [ravel(apart[:-1], self._apart[:-1]), apart[-1]]
        return apart

    def decode(self, held: Expression) -> Expression:
        """The value that memory holds."""
        if self.offset:
            if self.type.dtype not in BYTES:
                return held.astype(self.type.dtype) - constant(self.offset, self.type.dtype)
            by = constant(self.offset, self.dtype)
            return tirx.reinterpret(self.type.dtype, held ^ by if abs(self.offset) == SIGN else held - by)
        return held if self.dtype == self.type.dtype else held.astype(self.type.dtype)

    def encode(self, value: Expression) -> Expression:
        """What memory holds for a value. TVM cannot compile another dtype of a constant's bits, as of what pads."""
        if self.offset and isinstance(value, tirx.IntImm):
            return constant(int(value) + self.offset, self.dtype)
        if self.offset and isinstance(value, ir.Call) and value.op.name == CHOICE:
            condition, *ways = value.args
            return tirx.if_then_else(condition, *map(self.encode, ways))
        if self.offset and self.type.dtype not in BYTES:
            return (value + constant(self.offset, self.type.dtype)).astype(self.dtype)
        if self.offset:
            held, by = tirx.reinterpret(self.dtype, value), constant(self.offset, self.dtype)
            return held ^ by if abs(self.offset) == SIGN else held + by
        return value if self.dtype == self.type.dtype else value.astype(self.dtype)

    def lay(self, value: Array, fill: int = 0) -> Array:
        """A parameter as it lies in memory; padding and border hold `fill`."""
        held = value.astype(np.int64) + self.offset if self.offset else value
        around = [(self.before[axis], self.after[axis]) for axis in self.order]
        if self.inner is not None:
            before, after = around[-1]
            around[-1] = (before, after + self.length - self.type.shape[self.inner])
        padded = np.pad(held.transpose(self.order).astype(self.dtype), around, constant_values=fill)
        return np.ascontiguousarray(padded.reshape(self.shape))

    @property
    def is_readable(self) -> bool:
        """Whether memory holds the values themselves, so that a `reader` gives them."""
        return self.dtype == self.type.dtype and not self.offset

    def reader(self) -> Callable[[Array], Array]:
        """Gives of memory the tensor that lies in it, a view: what `lay` undoes, where it `is_readable`."""
        apart, axes = self._apart, [self.order.index(axis) for axis in range(self.type.rank)]
        inside = tuple(slice(self.before[axis], self.before[axis] + self.type.shape[axis]) for axis in self.order)
        return lambda held: held.reshape(apart)[inside].transpose(axes)


@dataclass(frozen=True)
class Walk:
    """The order in which a region's outputs are computed: that of their memory, whose border is left out.

    flat: all positions are one axis, as they are in the memory of every output. turns: of how many tensors
    the innermost axis takes elements in turns.
    """

    storage: Storage
    flat: bool
    turns: int = 1

    @classmethod
    def over(cls, storages: Sequence[Storage], may_be_flat: bool = True, turns: int = 1) -> Walk:
        """That of storages with one innermost axis and one length of it."""
        return cls(storages[0], may_be_flat and all(storage.is_one_run for storage in storages), turns)

    @property
    def inner(self) -> int | None:
        return self.storage.inner

    @property
    def positions(self) -> tuple[int, ...]:
        """The lengths of the axes before the innermost one."""
        return self.storage.positions

    @property
    def shape(self) -> tuple[int, ...]:
        return (math.prod(self.positions), self.storage.length) if self.flat else self.storage.core

    def logical(self, places: Sequence[Expression]) -> list[Expression]:
        """The logical index of a place in the walk."""
        if self.flat:
            places = [*unravel(places[0], self.positions), places[1]]
        found = dict(zip(self.storage.order, places, strict=True))
        return [found[axis] for axis in range(self.storage.type.rank)]


class View:
    """The elements of a tensor by logical index, wherever they come from: memory, or an expression not yet stored.

    It stands for a TE tensor wherever a compute reads one.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        element: Callable[..., Expression],
        inner: int | None = None,
        tensor: Tensor = None,
        storage: Storage | None = None,
        flattened: View | None = None,
        non_negative: bool = False,
        turns: int = 1,
        near: int | None = None,
    ) -> None:
        """inner: the axis that is innermost in memory. tensor, storage: the memory. flattened: what it flattens.

        non_negative: whether the elements are proven integers of at least 0, though the dtype has a sign.
        turns: of how many tensors channels are taken in turns. near: the axis along which elements follow each other in
        memory that no storage describes.
        """
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype
        self.inner, self.tensor, self.storage, self.flattened = inner, tensor, storage, flattened
        self.non_negative, self.turns = non_negative, turns
        self._element, self._near = element, near

    def __call__(self, *at: Expression) -> Expression:
        return self._element(*at)

    @property
    def near(self) -> int | None:
        """The axis along which elements follow each other in memory, None where that is not known."""
        if self.inner is not None or self.storage is None:
            return self._near if self.inner is None else self.inner
        return self.storage.order[-1]

    @property
    def length(self) -> int:
        """Of the innermost axis, with what pads it in memory."""
        return self.shape[-1] if self.storage is None else self.storage.length

    def permuted(self, axes: Sequence[int]) -> View:
        """The transpose whose axis i is axis axes[i]: of the same memory, as a storage where one describes it."""
        storage = None if self.storage is None else self.storage.permuted(axes)
        if storage is not None:
            return View.of(self.tensor, storage)

        def element(*at: Expression) -> Expression:
            places = dict(zip(axes, at, strict=True))
            return self(*(places[axis] for axis in range(len(axes))))

        inner, near = (None if each is None else tuple(axes).index(each) for each in (self.inner, self.near))
        return View([self.shape[axis] for axis in axes], self.dtype, element, inner, near=near)

    @classmethod
    def of(cls, tensor: Tensor, storage: Storage) -> View:
        """The tensor that `tensor` holds as `storage` says."""

        def element(*at: Expression) -> Expression:
            return storage.decode(tensor(*storage.places(at)))

        return cls(storage.type.shape, storage.type.dtype, element, storage.inner, tensor, storage)
