"""Operators that exchange axes, repeat elements, or move elements between channels and space."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._intervals import output_shape, reshaped
from mrt.symbol.types import TensorType, normalize_axis


@operator("SwapAxis", "swapaxes")
class SwapAxis(Operator):
    """The data with axes dim1 and dim2 exchanged."""

    dim1: int = 0
    dim2: int = 0

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        order = list(range(x.rank))
        first, second = self.axes(x.rank)
        order[first], order[second] = second, first
        return x.with_shape(tuple(x.shape[a] for a in order))

    def is_identity(self, *inputs: TensorType) -> bool:
        first, second = self.axes(inputs[0].rank)
        return first == second

    def evaluate(self, x: Array) -> Array:
        return np.swapaxes(x, self.dim1, self.dim2)

    def bounds(self, x: Interval) -> Interval:
        first, second = self.axes(len(x.shape))
        lo, hi = (np.swapaxes(bound, first, second) for bound in (x.lo, x.hi))
        return Interval(lo, hi, output_shape(self, x))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        first, second = self.axes(inputs[index].rank)
        return {first: second, second: first}.get(axis, axis)

    def batch_obstacle(self, x: TensorType) -> str:
        axes = self.axes(x.rank)
        return f"axes {axes} with axis 0 are exchanged" if 0 in axes and axes[0] != axes[1] else ""

    def axes(self, rank: int) -> tuple[int, int]:
        """The two axes, counted from the front."""
        return normalize_axis(self.dim1, rank), normalize_axis(self.dim2, rank)


@operator("slice_like")
class SliceLike(Operator):
    """The data's beginning along each of `axes` (all if none is named), as long as the second input is there."""

    axes: tuple[int, ...] = ()

    input_names = ("data", "shape_like")
    keeps_scale = True

    def infer(self, x: TensorType, like: TensorType) -> TensorType:
        lengths = self.lengths(x.shape, like.shape)
        if any(n > length for n, length in zip(lengths, x.shape, strict=True)):
            raise GraphError(f"data is {x}, shape_like {like}; data must be no shorter along axes {self.axes or 'all'}")
        return x.with_shape(lengths)

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array, like: Array) -> Array:
        return x[tuple(map(slice, self.lengths(x.shape, like.shape)))]

    def bounds(self, x: Interval, like: Interval) -> Interval:
        lengths = self.lengths(x.shape, like.shape)

        def cut(bound: Array) -> Array:
            return bound[tuple(map(slice, lengths))]

        return Interval(cut(x.lo), cut(x.hi), lengths)

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        is_whole = self.infer(*inputs).shape[axis] == inputs[0].shape[axis] if index == 0 else False
        return axis if is_whole else None

    def batch_obstacle(self, x: TensorType, like: TensorType) -> str:
        return "axis 0 is cut" if self.lengths(x.shape, like.shape)[:1] != x.shape[:1] else ""

    def lengths(self, shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
        """The output's shape."""
        if not self.axes and len(shape) != len(like):
            raise GraphError(f"shapes are {shape} and {like}; equal ranks are needed where no axes are named")
        axes = self.axes or range(len(shape))
        named = {normalize_axis(a, len(shape)): like[normalize_axis(a, len(like))] for a in axes}
        return tuple(named.get(a, n) for a, n in enumerate(shape))


@operator("tile")
class Tile(Operator):
    """The whole data again and again, reps[i] times along axis i; reps and axes are aligned at the last."""

    reps: tuple[int, ...]

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        if min(self.reps, default=1) < 1:
            raise GraphError(f"reps is {self.reps}; counts of at least 1 are needed")
        shape, reps = self.aligned(x.shape)
        return x.with_shape(tuple(n * r for n, r in zip(shape, reps, strict=True)))

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        return np.tile(x, self.reps)

    def bounds(self, x: Interval) -> Interval:
        shape, reps = self.aligned(x.shape)

        def tiled(bound: Array) -> Array:
            bound = bound.reshape((1,) * (len(shape) - bound.ndim) + bound.shape)
            return np.tile(bound, [1 if n == 1 else r for n, r in zip(bound.shape, reps, strict=True)])

        return Interval(tiled(x.lo), tiled(x.hi), output_shape(self, x))

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        shape, reps = self.aligned(inputs[index].shape)
        behind = axis + len(shape) - inputs[index].rank
        return behind if reps[behind] == 1 else None

    def batch_obstacle(self, x: TensorType) -> str:
        shape, reps = self.aligned(x.shape)
        return "axis 0 is repeated" if len(shape) > x.rank or reps[:1] not in ((), (1,)) else ""

    def aligned(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The data's shape and the counts, with leading ones up to one length."""
        rank = max(len(shape), len(self.reps))
        return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(self.reps)) + self.reps


@operator("repeat")
class Repeat(Operator):
    """Every element `repeats` times in a row along `axis`; without an axis the data is flattened before."""

    repeats: int
    axis: int | None = None

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        if self.repeats < 1:
            raise GraphError(f"repeats is {self.repeats}; a count of at least 1 is needed")
        if self.axis is None:
            return x.with_shape((x.size * self.repeats,))
        axis = normalize_axis(self.axis, x.rank)
        return x.with_shape(tuple(n * self.repeats if a == axis else n for a, n in enumerate(x.shape)))

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        return np.repeat(x, self.repeats, self.axis)

    def bounds(self, x: Interval) -> Interval:
        shape = output_shape(self, x)
        if self.axis is None:
            x = reshaped(x, (int(np.prod(x.shape, dtype=np.int64)),))
        axis = 0 if self.axis is None else normalize_axis(self.axis, len(x.shape))
        return Interval(_repeated(x.lo, self.repeats, axis), _repeated(x.hi, self.repeats, axis), shape)

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return None if self.axis is None else axis

    def batch_obstacle(self, x: TensorType) -> str:
        if self.axis is None:
            return "all axes are flattened"
        return "axis 0 is repeated" if normalize_axis(self.axis, x.rank) == 0 else ""


@operator("UpSampling")
class UpSampling(Operator):
    """An image (N, C, H, W) enlarged `scale` times by repeating its rows and columns (sample_type nearest)."""

    scale: int
    sample_type: str = "nearest"

    ignored = frozenset({"num_args", "num_filter", "multi_input_mode", "workspace"})
    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        if self.sample_type != "nearest":
            raise GraphError(f"sample_type is {self.sample_type}; nearest is needed")
        if self.scale < 1 or x.rank != 4:
            raise GraphError(f"data is {x}, scale {self.scale}; rank 4 and a scale of at least 1 are needed")
        return x.with_shape((*x.shape[:2], x.shape[2] * self.scale, x.shape[3] * self.scale))

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        return x.repeat(self.scale, 2).repeat(self.scale, 3)

    def kept_axis(self, axis: int, index: int, *inputs: TensorType) -> int | None:
        return axis if axis < 2 else None

    def bounds(self, x: Interval) -> Interval:
        lo, hi = (_repeated(_repeated(bound, self.scale, 2), self.scale, 3) for bound in (x.lo, x.hi))
        return Interval(lo, hi, output_shape(self, x))


def _repeated(bound: Array, times: int, axis: int) -> Array:
    return bound if bound.shape[axis] == 1 else np.repeat(bound, times, axis)


@operator("depth_to_space")
class DepthToSpace(Operator):
    """(N, B B C, H, W) to (N, C, B H, B W), B the block size.

    Y[n, c, B h + i, B w + j] = X[n, (B i + j) C + c, h, w]
    """

    block_size: int

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        size = self.block_size
        if size < 1 or x.rank != 4 or x.shape[1] % (size * size):
            raise GraphError(f"data is {x}; rank 4 and a number of channels that {size} * {size} divides are needed")
        batch, channels, height, width = x.shape
        return x.with_shape((batch, channels // (size * size), height * size, width * size))

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        size = self.block_size
        batch, channels, height, width = x.shape
        blocks = x.reshape(batch, size, size, channels // (size * size), height, width)
        return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(batch, -1, height * size, width * size)

    def bounds(self, x: Interval) -> Interval:
        """Bounds for each channel: the hull over its positions."""
        hull, blocks = x.reduced([0, 1]), self.block_size**2

        def apart(bound: Array) -> Array:
            """(N, blocks, C, H, W); one block for all where the bound is the same for every channel."""
            return bound.reshape(bound.shape[0], blocks if bound.shape[1] > 1 else 1, -1, *bound.shape[2:])

        lo, hi = apart(hull.lo).min(axis=1), apart(hull.hi).max(axis=1)
        return Interval(lo, hi, output_shape(self, x))


@operator("space_to_depth")
class SpaceToDepth(Operator):
    """(N, C, B H, B W) to (N, B B C, H, W), B the block size: what depth_to_space undoes.

    Y[n, (B i + j) C + c, h, w] = X[n, c, B h + i, B w + j]
    """

    block_size: int

    keeps_scale = True

    def infer(self, x: TensorType) -> TensorType:
        size = self.block_size
        if size < 1 or x.rank != 4 or x.shape[2] % size or x.shape[3] % size:
            raise GraphError(f"data is {x}; rank 4 and a height and width that {size} divides are needed")
        batch, channels, height, width = x.shape
        return x.with_shape((batch, channels * size * size, height // size, width // size))

    def is_identity(self, *inputs: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        size = self.block_size
        batch, channels, height, width = x.shape
        blocks = x.reshape(batch, channels, height // size, size, width // size, size)
        return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(batch, -1, height // size, width // size)

    def bounds(self, x: Interval) -> Interval:
        """Bounds for each channel: the hull over its positions."""
        hull, blocks = x.reduced([0, 1]), self.block_size**2

        def spread(bound: Array) -> Array:
            return bound if bound.shape[1] == 1 else np.tile(bound, (1, blocks, 1, 1))

        return Interval(spread(hull.lo), spread(hull.hi), output_shape(self, x))
