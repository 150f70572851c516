"""How the integers of one tensor stand for real values: what quantizes a model's inputs and dequantizes its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan
from typing import Any, Literal

import numpy as np

from mrt.errors import DataError, ModelFileError
from mrt.messages import inputs_option
from mrt.symbol.arrays import as_array
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.interval import Array
from mrt.symbol.rounding import HALF_EVEN, rounded_steps
from mrt.symbol.strict_json import Floats, StrictModel, validated
from mrt.symbol.types import INT32_MAX, INT32_MIN

__all__ = ["Array", "TensorQuantization"]

FAR = 4
"""Integers for a real tensor that are so many times the width of its range beyond it are in other units."""
_FLOAT32 = np.finfo(np.float32)


class _Entry(StrictModel):
    """The facts of a `TensorQuantization` as they stand in a file."""

    name: str
    shape: list[int]
    dtype: Literal["bool", "int8", "uint8", "int16", "int32"]
    scale: Floats
    zero_point: int
    lo: int
    hi: int
    is_given: bool
    rounding: Literal[
        "half_even",
        "half_odd",
        "floor",
        "ceil",
        "toward_zero",
        "away_from_zero",
        "half_away_from_zero",
        "half_toward_zero",
        "sign",
    ] = "half_even"
    zero_point_first: bool = False


@dataclass(frozen=True, eq=False)
class TensorQuantization:
    """real = scale * (q - zero_point) for integers lo <= q <= hi of one tensor.

    shape: with the batch as axis 0. dtype: NumPy's name of the storage. scale: float64, one value or an array that
    broadcasts to the shape. is_given: whether the integers come from outside, in [lo, hi] as its giver says, so that
    integers are taken as they are and not as real values. rounding, zero_point_first: how real values become integers,
    as `quantize` has it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: Any
    zero_point: int
    lo: int
    hi: int
    is_given: bool = False
    rounding: str = HALF_EVEN
    zero_point_first: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "scale", np.asarray(self.scale, np.float64))

    @property
    def defect(self) -> str:
        """Why these facts describe no tensor, "" where they do: what is found and what is needed."""
        lowest, highest = DTYPE_RANGES[self.dtype]
        if not lowest <= self.lo <= self.hi <= highest:
            return f"{self.name} holds [{self.lo}, {self.hi}]; an interval within [{lowest}, {highest}] is needed"
        if not INT32_MIN <= self.zero_point <= INT32_MAX:  # beyond the dtype where the values lie far from zero
            return f"{self.name} has zero point {self.zero_point}; one of 32 bits is needed"
        with np.errstate(over="ignore", under="ignore"):
            scale = self.scale.astype(np.float32)
        if not (scale.size and (scale >= _FLOAT32.tiny).all() and (scale <= _FLOAT32.max).all()):
            return f"{self.name} has scale {self.scale}; it must be positive and normal in float32"
        lengths = self.shape[len(self.shape) - scale.ndim :]
        if scale.ndim > len(self.shape) or any(n not in (1, m) for n, m in zip(scale.shape, lengths, strict=True)):
            return f"{self.name} has a scale of shape {scale.shape}; one that broadcasts to {self.shape} is needed"
        if min(self.shape, default=1) < 1:
            return f"{self.name} has shape {self.shape}; lengths of at least 1 are needed"
        return ""

    def quantize(self, x: Any) -> Array:
        """The integers of any number of samples (axis 0), in the storage dtype.

        1. Where they are given, see `given`.
        2. Else x holds real values, see `real`: clip(rint(float32(x) / float32(scale)) + zero_point, lo, hi), rounded
           half to even or as `rounding` says, infinities being clipped.

        Raises DataError naming the tensor for NaN, for what is no real number, and for a wrong shape.
        """
        if self.is_given:
            return self.given(x)
        with np.errstate(over="ignore"):  # beyond float32 is beyond the clip
            steps = self.real(as_array(x, self.name)) / self.scale.astype(np.float32)
        # In float64 the sum is exact wherever the clip does not decide.
        moved = rounded_steps(steps, np.asarray(self.zero_point), self.rounding, self.zero_point_first)
        q: Array = np.clip(moved, self.lo, self.hi).astype(self.dtype)
        return q

    def given(self, x: Any) -> Array:
        """The integers that a caller gives as `x`, in the storage dtype.

        1. Integers and truth values of any dtype are the integers themselves; all must be in [lo, hi].
        2. Floats are real values, which are rounded to their integers. Where real values are whole numbers, the scale
           being 1, they must be whole. They may be less than a step beyond [lo, hi], which is rounding.

        Raises DataError naming the tensor, what it holds and what is needed.
        """
        q = as_array(x, self.name)
        if q.dtype.name == self.dtype:
            self.check_integers(q)
            return q
        self.check_shape(q)
        if q.dtype.kind == "f":
            return self._given_as_real(q)
        if q.dtype.kind not in "iub":
            raise DataError(f"{self.name} is {q.dtype}; {self._needed} are needed")
        if q.size and not (self.lo <= int(q.min()) and int(q.max()) <= self.hi):
            raise DataError(f"{self.name} holds [{q.min()}, {q.max()}]; {self._needed} are needed")
        return q.astype(self.dtype)

    def _given_as_real(self, x: Array) -> Array:
        """The integers of floats that hold the real values of a given tensor."""
        self._reject_nan(x)
        if self._is_whole:
            parts = x[x != np.rint(x)]
            if parts.size:
                raise DataError(f"{self.name} holds {parts[0]}; {self._needed} are needed")
            steps = x.astype(np.float64)
        else:
            with np.errstate(over="ignore"):
                steps = (x.astype(np.float32) / self.scale.astype(np.float32)).astype(np.float64)
        steps = steps + self.zero_point
        if x.size and not (self.lo - 1 < steps.min() and steps.max() < self.hi + 1):
            raise DataError(f"{self.name} holds real values in [{x.min()}, {x.max()}]; {self._needed} are needed")
        q: Array = np.clip(np.rint(steps), self.lo, self.hi).astype(self.dtype)
        return q

    @cached_property
    def _is_whole(self) -> bool:
        """Whether real values are whole numbers because the scale is 1."""
        return bool((self.scale == 1).all())

    @property
    def _needed(self) -> str:
        """What may be given, for messages."""
        integers = f"integers in [{self.lo}, {self.hi}]"
        if self._is_whole and self.zero_point == 0:
            return integers
        lo, hi = self._real_ends
        return f"{integers} of an integer dtype, or floats in [{lo:.6g}, {hi:.6g}] that stand for them,"

    @cached_property
    def _real_ends(self) -> tuple[float, float]:
        """The least and the greatest real value that the integers stand for."""
        scale = float(self.scale.max())
        return scale * (self.lo - self.zero_point), scale * (self.hi - self.zero_point)

    def real(self, x: Array) -> Array:
        """`x`, real values of any number of samples, as float32.

        Integers are real values too. Where they are beyond all that calibration saw, by more than FAR times its width,
        they are in other units, such as pixels for a network that takes [0, 1]: they are refused.

        Raises DataError naming the tensor for those, for NaN, for what is no real number, and for a wrong shape.
        """
        self.check_shape(x)
        if x.dtype.kind not in "fiub":
            raise DataError(f"{self.name} is {x.dtype}; real numbers are needed")
        if x.dtype.kind in "iu":
            self._reject_other_units(x)
        if x.dtype != np.float32:
            with np.errstate(over="ignore"):
                x = x.astype(np.float32)
        self._reject_nan(x)
        return x

    def _reject_other_units(self, x: Array) -> None:
        lo, hi = self._real_ends
        room = FAR * (hi - lo)
        if x.size and not (lo - room <= int(x.min()) and int(x.max()) <= hi + room):
            raise DataError(
                f"{self.name} is {x.dtype} in [{x.min()}, {x.max()}], but calibration saw values of about "
                f"[{lo:.6g}, {hi:.6g}]; preprocess it as the calibration data were, or declare how these integers "
                f"stand for real values by {inputs_option(self.name)}; if they are real values that are to saturate, "
                f"give float32"
            )

    def _reject_nan(self, x: Array) -> None:
        if x.size and isnan(x.item(x.argmin())):  # NaN counts as the least; of few numbers this takes less than min
            raise DataError(f"{self.name} holds NaN; finite numbers are needed")

    def dequantize(self, q: Array) -> Array:
        """scale * (q - zero_point) in float64, rounded once to float32. q: integers of any number of samples."""
        q = as_array(q, self.name)
        self.check_shape(q)
        x: Array = (self.scale * (q.astype(np.float64) - self.zero_point)).astype(np.float32)
        return x

    def filled(self, integers: Array) -> Array:
        """Integers of one sample, (1, *shape), or one for every element, in the storage dtype.

        DataError where they have another shape or leave [lo, hi].
        """
        shape = (1, *self.shape[1:]) if integers.ndim == 0 else integers.shape
        q: Array = np.array(np.broadcast_to(integers, shape), self.dtype)
        self.check_integers(q)
        return q

    def check_integers(self, q: Array) -> None:
        """DataError unless q has the shape (but for the number of samples), the dtype, and values in [lo, hi]."""
        self.check_shape(q)
        if q.dtype != self.dtype and q.dtype.name != self.dtype:  # the name says nothing of the order of bytes
            raise DataError(f"{self.name} is {q.dtype}; {self.dtype} is needed")
        below, above = self._open_ends
        if q.size and ((below and q.min() < self.lo) or (above and q.max() > self.hi)):
            raise DataError(f"{self.name} holds [{q.min()}, {q.max()}]; values in [{self.lo}, {self.hi}] are needed")

    @cached_property
    def _open_ends(self) -> tuple[bool, bool]:
        """Whether the dtype has values below lo, and above hi."""
        limits = np.iinfo(self.dtype)
        return self.lo > limits.min, self.hi < limits.max

    def check_shape(self, x: Array) -> None:
        """DataError unless x has the tensor's shape but for the number of samples."""
        if x.shape != self.shape and (x.ndim != len(self.shape) or x.shape[1:] != self.shape[1:]):
            needed = ", ".join(["any", *map(str, self.shape[1:])])
            raise DataError(f"{self.name} has shape {x.shape}; ({needed}) is needed")

    def with_shape(self, shape: tuple[int, ...]) -> TensorQuantization:
        return replace(self, shape=shape)

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON's types; floats survive unchanged."""
        facts = {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "scale": self.scale.tolist(),
            "zero_point": int(self.zero_point),
            "lo": int(self.lo),
            "hi": int(self.hi),
            "is_given": bool(self.is_given),
        }
        if self.rounding != HALF_EVEN or self.zero_point_first:
            facts |= {"rounding": self.rounding, "zero_point_first": self.zero_point_first}
        return facts

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorQuantization:
        """The inverse of `to_json`.

        Raises ModelFileError where a fact is missing, malformed or of another type, and where they have a `defect`.
        """
        facts = dict(validated(_Entry, data))
        entry = cls(**facts | {"shape": tuple(facts["shape"])})
        if entry.defect:
            raise ModelFileError(entry.defect)
        return entry
