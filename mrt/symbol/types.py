"""What is known of a tensor before any value: its shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.limits import MAX_RANK

FLOAT_DTYPES = frozenset({"float16", "float32", "float64"})
STORAGE_DTYPES = ("int8", "uint8", "int16", "int32")
INTEGER_DTYPES = frozenset(STORAGE_DTYPES) | {"int64", "bool"}
DTYPES = FLOAT_DTYPES | INTEGER_DTYPES
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of one tensor. dtype is a NumPy name such as "float32" or "int8".

    GraphError for a dtype that is not known, and for a shape that no tensor can have: over 32 axes, or a length
    below 0.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise GraphError(f"dtype {self.dtype} is not known; use one of {sorted(DTYPES)}")
        if len(self.shape) > MAX_RANK:
            raise GraphError(f"a tensor of {len(self.shape)} axes; at most {MAX_RANK} are needed")
        if min(self.shape, default=0) < 0:
            raise GraphError(f"a tensor of shape {self.shape}; lengths from 0 on are needed")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(prod(self.shape))

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOAT_DTYPES

    @property
    def is_integer(self) -> bool:
        return not self.is_float

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return replace(self, shape=tuple(int(n) for n in shape))

    def with_dtype(self, dtype: str) -> TensorType:
        return replace(self, dtype=dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def type_of(array: np.ndarray[Any, np.dtype[Any]]) -> TensorType:
    """The type of a NumPy array."""
    return TensorType(tuple(array.shape), array.dtype.name)


def normalize_axis(axis: int, rank: int) -> int:
    """An axis in [-rank, rank) counted from the front; GraphError outside."""
    if not -rank <= axis < rank:
        raise GraphError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis % rank


def arithmetic_dtype(*inputs: TensorType) -> str:
    """dtype of sums and products: int32 for integers of any width, else the widest float.

    Raises GraphError where floats meet integers, which no graph may do without a cast.
    """
    if all(t.is_integer for t in inputs):
        return "int64" if any(t.dtype == "int64" for t in inputs) else "int32"
    if all(t.is_float for t in inputs):
        dtypes = {t.dtype for t in inputs}
        return dtypes.pop() if len(dtypes) == 1 else str(np.result_type(*dtypes).name)
    raise GraphError(f"integer and float operands meet: {', '.join(map(str, inputs))}; cast one of them")


def broadcast_shape(*inputs: TensorType) -> tuple[int, ...]:
    """The shape that the inputs broadcast to, by NumPy's rule."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*(t.shape for t in inputs)))
    except ValueError:
        raise GraphError(f"shapes do not broadcast: {', '.join(map(str, inputs))}") from None


def narrowest_dtype(lo: int, hi: int) -> str:
    """The narrowest of int8, uint8, int16, int32 that holds [lo, hi]; GraphError beyond 32 bits."""
    for dtype in STORAGE_DTYPES:
        info = np.iinfo(dtype)
        if info.min <= lo and hi <= info.max:
            return dtype
    raise GraphError(f"[{lo}, {hi}] does not fit 32 bits")
