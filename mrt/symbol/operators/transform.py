"""Operators that move or select values and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._intervals import output_shape, reshaped
from mrt.symbol.operators._shape_codes import decoded
from mrt.symbol.types import TensorType, arithmetic_dtype, normalize_axis


@operator("Concat", "concat")
class Concat(Operator):
    """The inputs one after another along axis `dim`. Integers must be of one dtype."""

    dim: int = 1

    ignored = frozenset({"num_args"})

    def infer(self, *data: TensorType) -> TensorType:
        if not data:
            raise GraphError("no inputs are given; at least one is needed")
        first = data[0]
        axis = normalize_axis(self.dim, first.rank)
        others = {x.shape[:axis] + x.shape[axis + 1 :] for x in data}
        if len(others) > 1 or len({x.rank for x in data}) > 1:
            raise GraphError(f"inputs are {', '.join(map(str, data))}; they may differ along axis {axis} only")
        dtypes = {x.dtype for x in data}
        if len(dtypes) > 1 and not all(x.is_float for x in data):
            raise GraphError(f"inputs are {', '.join(map(str, data))}; integers of one dtype are needed: cast them")
        length = sum(x.shape[axis] for x in data)
        dtype = first.dtype if len(dtypes) == 1 else arithmetic_dtype(*data)
        return TensorType((*first.shape[:axis], length, *first.shape[axis + 1 :]), dtype)

    def is_identity(self, *inputs: TensorType) -> bool:
        return len(inputs) == 1

    def evaluate(self, *data: Array) -> Array:
        return np.concatenate(data, axis=self.dim)

    def bounds(self, *data: Interval) -> Interval:
        shape = output_shape(self, *data)
        axis = normalize_axis(self.dim, len(shape))
        lengths = [x.shape[axis] for x in data]
        lo, hi = (_joined([getattr(x, side) for x in data], lengths, axis) for side in ("lo", "hi"))
        return Interval(lo, hi, shape)

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    @property
    def selects(self) -> bool:
        return True

    def joined_axis(self, rank: int) -> int | None:
        return normalize_axis(self.dim, rank)

    def batch_obstacle(self, *data: TensorType) -> str:
        return "inputs are joined along axis 0" if normalize_axis(self.dim, data[0].rank) == 0 else ""


def _joined(bounds: Sequence[Array], lengths: Sequence[int], axis: int) -> Array:
    """Bounds one after another along an axis, expanded along that axis and where another bound varies."""
    common = np.broadcast_shapes(*((*b.shape[:axis], 1, *b.shape[axis + 1 :]) for b in bounds))
    return np.concatenate(
        [np.broadcast_to(b, (*common[:axis], n, *common[axis + 1 :])) for b, n in zip(bounds, lengths, strict=True)],
        axis=axis,
    )


@operator("Flatten", "flatten")
class Flatten(Operator):
    """(N, ...) to (N, product of the other axes)."""

    keeps_scale = True
    keeps_order = True

    def infer(self, x: TensorType) -> TensorType:
        if not x.rank:
            raise GraphError(f"data is {x}; rank 1 or more is needed")
        return x.with_shape((x.shape[0], prod(x.shape[1:])))

    def evaluate(self, x: Array) -> Array:
        return x.reshape(x.shape[0], prod(x.shape[1:]))

    def bounds(self, x: Interval) -> Interval:
        return reshaped(x, output_shape(self, x))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return _kept_in_order(axis, inputs[index], self.infer(*inputs))


def _kept_in_order(axis: int, x: TensorType, y: TensorType) -> int | None:
    """`kept_axis` for an operator whose output y holds all elements of x in the same order."""
    before = prod(x.shape[:axis])
    for behind in range(min(axis, 1), y.rank):
        if prod(y.shape[:behind]) == before and y.shape[behind] % x.shape[axis] == 0:
            return behind
    return None


@operator("Reshape", "reshape")
class Reshape(Operator):
    """The same elements in the same order in another shape, with MXNet's codes.

    1. A positive number is a length; it passes one input axis.
    2. 0 copies the input axis.
    3. -1 takes what is left; it may stand once and passes one input axis.
    4. -2 copies all remaining input axes.
    5. -3 merges two input axes.
    6. -4, a, b splits an input axis into a and b, one of which may be -1.

    reverse: the codes are matched from the right.
    """

    shape: tuple[int, ...]
    reverse: bool = False

    ignored = frozenset({"target_shape", "keep_highest"})
    keeps_scale = True
    keeps_order = True

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape(decoded(self.shape, x, self.reverse))

    def evaluate(self, x: Array) -> Array:
        return x.reshape(self.infer(TensorType(x.shape)).shape)

    def bounds(self, x: Interval) -> Interval:
        return reshaped(x, output_shape(self, x))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return _kept_in_order(axis, inputs[index], self.infer(*inputs))

    def batch_obstacle(self, x: TensorType) -> str:
        """Why axis 0 of the output is not the batch, or more depends on it than that; "" where neither is so."""
        reason = f"shape {self.shape} does not keep axis 0"
        if not x.rank:
            return reason
        longer = x.with_shape((3 * x.shape[0] + 2, *x.shape[1:]))
        try:
            now, then = self.infer(x).shape, self.infer(longer).shape
        except GraphError:
            return reason
        return "" if now == (x.shape[0], *then[1:]) and then[:1] == longer.shape[:1] else reason


@operator("transpose")
class Transpose(Operator):
    """Output axis i is input axis axes[i]; no axes reverse the order."""

    axes: tuple[int, ...] = ()

    keeps_scale = True
    keeps_elements = True

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape(tuple(x.shape[a] for a in self.order(x.rank)))

    def is_identity(self, *inputs: TensorType) -> bool:
        long = [axis for axis in self.order(inputs[0].rank) if inputs[0].shape[axis] != 1]
        return long == sorted(long)

    def evaluate(self, x: Array) -> Array:
        return x.transpose(self.order(x.ndim))

    def bounds(self, x: Interval) -> Interval:
        order = self.order(len(x.shape))
        return Interval(x.lo.transpose(order), x.hi.transpose(order), tuple(x.shape[a] for a in order))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return self.order(inputs[index].rank).index(axis)

    def batch_obstacle(self, x: TensorType) -> str:
        order = self.order(x.rank)
        return f"axes {order} move axis 0" if order[:1] != (0,) else ""

    def order(self, rank: int) -> tuple[int, ...]:
        """The input axis of each output axis, counted from the front."""
        if not self.axes:
            return tuple(range(rank))[::-1]
        order = tuple(normalize_axis(a, rank) for a in self.axes)
        if sorted(order) != list(range(rank)):
            raise GraphError(f"axes are {self.axes}; each of the {rank} axes is needed once")
        return order


@operator("expand_dims")
class ExpandDims(Operator):
    """A new axis of length 1 at position `axis` of the output."""

    axis: int

    keeps_scale = True
    keeps_order = True

    def infer(self, x: TensorType) -> TensorType:
        axis = normalize_axis(self.axis, x.rank + 1)
        return x.with_shape((*x.shape[:axis], 1, *x.shape[axis:]))

    def evaluate(self, x: Array) -> Array:
        return np.expand_dims(x, self.axis)

    def bounds(self, x: Interval) -> Interval:
        return Interval(np.expand_dims(x.lo, self.axis), np.expand_dims(x.hi, self.axis), output_shape(self, x))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return axis + (normalize_axis(self.axis, inputs[index].rank + 1) <= axis)

    def batch_obstacle(self, x: TensorType) -> str:
        return "a new axis is put at 0" if normalize_axis(self.axis, x.rank + 1) == 0 else ""


@operator("squeeze")
class Squeeze(Operator):
    """Drops the named axes, which must have length 1; without names all that have."""

    axis: tuple[int, ...] | None = None

    keeps_scale = True
    keeps_order = True

    def infer(self, x: TensorType) -> TensorType:
        dropped = self.dropped(x.shape)
        return x.with_shape(tuple(n for a, n in enumerate(x.shape) if a not in dropped))

    def evaluate(self, x: Array) -> Array:
        return x.squeeze(self.dropped(x.shape))

    def bounds(self, x: Interval) -> Interval:
        dropped = self.dropped(x.shape)
        return Interval(x.lo.squeeze(dropped), x.hi.squeeze(dropped), output_shape(self, x))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        dropped = self.dropped(inputs[index].shape)
        return None if axis in dropped else axis - sum(a < axis for a in dropped)

    def batch_obstacle(self, x: TensorType) -> str:
        return "axis 0 is dropped" if 0 in self.dropped(x.shape) else ""

    def dropped(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The dropped axes, counted from the front."""
        if self.axis is None:
            return tuple(a for a, n in enumerate(shape) if n == 1)
        axes = tuple(normalize_axis(a, len(shape)) for a in self.axis)
        if len(set(axes)) < len(axes) or any(shape[a] != 1 for a in axes):
            raise GraphError(f"axis is {self.axis}; axes of length 1 are needed, shape is {tuple(shape)}")
        return axes


class Slicing(Operator):
    """Slices along axes. Python's rules, but never empty where the data is not."""

    slices: ClassVar[Callable[..., tuple[slice, ...]]]
    """From the rank of the data the slice of every axis."""

    keeps_scale = True
    moves_elements = True

    def infer(self, x: TensorType) -> TensorType:
        return _sliced(x, self.slices(x.rank))

    def is_identity(self, *inputs: TensorType) -> bool:
        return all(s.step is None or s.step > 0 for s in self.slices(inputs[0].rank))

    def evaluate(self, x: Array) -> Array:
        return x[self.slices(x.ndim)]

    def bounds(self, x: Interval) -> Interval:
        slices = self.slices(len(x.shape))

        def cut(bound: Array) -> Array:
            return bound[tuple(s if n > 1 else slice(None) for s, n in zip(slices, bound.shape, strict=True))]

        return Interval(cut(x.lo), cut(x.hi), _sliced(TensorType(x.shape), slices).shape)

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return axis if self.slices(inputs[index].rank)[axis] in _WHOLE else None

    def batch_obstacle(self, x: TensorType) -> str:
        first = self.slices(x.rank)[:1]
        return "axis 0 is sliced" if first and first[0] not in _WHOLE else ""


_WHOLE = (slice(None), slice(0, None), slice(None, None, 1), slice(0, None, 1))
"""The slices that take everything, whatever the length."""


def _sliced(x: TensorType, slices: tuple[slice, ...]) -> TensorType:
    shape = tuple(len(range(*s.indices(n))) for s, n in zip(slices, x.shape, strict=True))
    if 0 in shape and 0 not in x.shape:
        raise GraphError(f"the slice of {x} is empty: {slices[shape.index(0)]} along axis {shape.index(0)}")
    return x.with_shape(shape)


@operator("slice", "crop")
class Slice(Slicing):
    """data[begin:end:step] axis by axis, from axis 0 on; None is an open end or step 1."""

    begin: tuple[int | None, ...]
    end: tuple[int | None, ...]
    step: tuple[int | None, ...] = ()

    def infer(self, x: TensorType) -> TensorType:
        step = self.step or (None,) * len(self.begin)
        if not len(self.begin) == len(self.end) == len(step) <= x.rank:
            raise GraphError(
                f"begin {self.begin}, end {self.end} and step {self.step} must have one length of at most {x.rank}"
            )
        if 0 in step:
            raise GraphError(f"step is {self.step}; 0 is no step")
        return super().infer(x)

    def slices(self, rank: int) -> tuple[slice, ...]:
        step = self.step or (None,) * len(self.begin)
        named = tuple(slice(b, e, s) for b, e, s in zip(self.begin, self.end, step, strict=True))
        return named + (slice(None),) * (rank - len(named))


@operator("slice_axis")
class SliceAxis(Slicing):
    """data[begin:end] along one axis; end None is open."""

    axis: int
    begin: int
    end: int | None

    def slices(self, rank: int) -> tuple[slice, ...]:
        at = normalize_axis(self.axis, rank)
        return tuple(slice(self.begin, self.end) if a == at else slice(None) for a in range(rank))


@operator("take")
class Take(Operator):
    """The slices of the data along `axis` at `indices`, whose axes take that axis' place.

    mode: an index outside is moved to the nearest end ("clip"), counted modulo the length ("wrap") or an error
    ("raise"). Float indices, which MXNet uses, are truncated.
    """

    family = "lookup"

    axis: int = 0
    mode: str = "clip"

    input_names = ("data", "indices")

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        if self.mode not in ("clip", "wrap", "raise"):
            raise GraphError(f"mode is {self.mode}; clip, wrap or raise is needed")
        axis = normalize_axis(self.axis, x.rank)
        if not x.shape[axis]:
            raise GraphError(f"axis {axis} of {x} is empty")
        return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def positions(self, index: int, *inputs: TensorType) -> tuple[int, int] | None:
        """With mode wrap, positions below 0 count from the end."""
        length = inputs[0].shape[normalize_axis(self.axis, inputs[0].rank)]
        return (-length if self.mode == "wrap" else 0, length - 1) if index == 1 else None

    def evaluate(self, x: Array, indices: Array) -> Array:
        return np.take(x, self._positions(indices, x.shape[self.axis]), axis=self.axis)

    def bounds(self, x: Interval, indices: Interval) -> Interval:
        shape = output_shape(self, x, indices)
        axis = normalize_axis(self.axis, len(x.shape))
        length, rank = x.shape[axis], len(indices.shape)
        extremes = x.reduced([other for other in range(len(x.shape)) if other != axis])

        def taken(bound: Callable[[], Array], extreme: Array) -> Array:
            if indices.is_constant and bound().shape[axis] == length:
                return np.take(bound(), self._positions(indices.expanded().lo, length), axis=axis)
            return extreme.reshape((*extreme.shape[:axis], *(1,) * rank, *extreme.shape[axis + 1 :]))

        return Interval(taken(lambda: x.lo, extremes.lo), taken(lambda: x.hi, extremes.hi), shape)

    def batch_obstacle(self, x: TensorType, indices: TensorType) -> str:
        return "slices are taken along axis 0" if normalize_axis(self.axis, x.rank) == 0 else ""

    def batch_obstacle_among(self, types: Sequence[TensorType], batched: Sequence[bool]) -> str:
        """A table without the batch is the same for every sample; its slices come in the order of the indices."""
        axis = normalize_axis(self.axis, types[0].rank)
        if batched[0]:
            return self.batch_obstacle(*types)
        return f"indices hold the batch, and slices are taken along axis {axis}" if axis else ""

    def _positions(self, indices: Array, length: int) -> Array:
        positions = indices.astype(np.int64)
        if self.mode == "wrap":
            return positions % length
        if self.mode == "raise" and positions.size and (positions.min() < 0 or positions.max() >= length):
            raise GraphError(f"take: an index lies outside [0, {length - 1}]; use mode clip or wrap")
        return np.clip(positions, 0, length - 1)
