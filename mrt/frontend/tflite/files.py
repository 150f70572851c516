"""What a TFLite file says, as plain records, and the arrays that stand in it.

The schema's classes read the bytes. They follow whatever offset stands there, so that a damaged file gives nonsense or
an error of theirs: what they give is checked, and their errors are told as the file's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import tflite

from mrt.errors import GraphError, ModelFileError, UnsupportedOperatorError
from mrt.frontend.shared.quantized import QuantizedConstant, dequantized_constant
from mrt.frontend.shared.refusals import MAX_MADE, check_size
from mrt.frontend.tflite.sparsity import Sparsity
from mrt.symbol import Array

_DTYPES = {
    "FLOAT32": "<f4",
    "FLOAT16": "<f2",
    "FLOAT64": "<f8",
    "INT8": "i1",
    "UINT8": "u1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "BOOL": "u1",
}
"""NumPy's dtype for the values of each type of tensor that is read."""

_EMPTY_TABLE = struct.pack("<HHi", 4, 4, 4)
"""A flatbuffer table, at byte 4, in which no field is set, so that each has the schema's default."""

_T = TypeVar("_T")


def names_of(enumeration: type) -> dict[int, str]:
    """The names of one of the schema's enumerations by their numbers."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


@dataclass(frozen=True)
class Tensor:
    """What a file says of one tensor."""

    name: str
    kind: str
    """The type as the schema calls it, such as "FLOAT32"."""
    shape: tuple[int, ...]
    sizes: tuple[int | None, ...]
    """The shape, with None for each size that is dynamic."""
    buffer: int
    scales: tuple[float, ...]
    """The scales of quantized integers: one, or one for each index of `channel_axis`; none for other tensors."""
    zero_points: tuple[int, ...]
    channel_axis: int
    flaw: str
    """In which form that is not read the values are stored, "" where they are."""
    sparsity: Sparsity | None = None
    is_variable: bool = False
    """Whether it is a state that operators change, which begins with zeros."""

    @property
    def is_quantized(self) -> bool:
        return bool(self.scales) and not self.kind.startswith("FLOAT")

    def readable_kind(self) -> str:
        """The type; UnsupportedOperatorError where it is one that is not read."""
        if self.kind not in _DTYPES:
            raise UnsupportedOperatorError(
                f"tensor {self.name} is of type {self.kind}; one of {', '.join(_DTYPES)} is needed"
            )
        return self.kind

    def dtype(self) -> str:
        """The dtype of the tensor in the graph; UnsupportedOperatorError where graphs have none for it."""
        kind = self.readable_kind()
        if kind.startswith("FLOAT"):
            return "float32"
        return "bool" if kind == "BOOL" else np.dtype(_DTYPES[kind]).name


@dataclass(frozen=True)
class Options:
    """The attributes of one operator, read from its table by the names of the schema's accessors."""

    label: str
    table: Any

    def integer(self, name: str) -> int:
        return reading(self.label, lambda: int(getattr(self.table, name)()))

    def number(self, name: str) -> float:
        return reading(self.label, lambda: float(getattr(self.table, name)()))

    def flag(self, name: str) -> bool:
        return bool(self.integer(name))

    def text(self, name: str) -> str:
        """A text, empty where it is not given."""
        return reading(self.label, lambda: (getattr(self.table, name)() or b"").decode())

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers, empty where it is not given."""
        return reading(self.label, lambda: numbers(getattr(self.table, f"{name}AsNumpy")()))


@dataclass(frozen=True)
class StoredOperator:
    """What a file says of one operator. Inputs and outputs are numbers of tensors, -1 an input that is left out."""

    kind: str
    """The operator as the schema calls it, or CUSTOM with its own name."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_kind: str
    table: Any
    custom: bytes = b""
    """The attributes of a custom operator, in a form of its own."""

    def options(self, kind: str, label: str) -> Options:
        """The options, which must be of this kind; where there are none each has the schema's default."""
        if self.options_kind not in ("NONE", kind):
            raise GraphError(f"{label}: has {self.options_kind}; {kind} are needed")
        options = getattr(tflite, kind)()
        if self.options_kind == "NONE" or self.table is None:
            options.Init(_EMPTY_TABLE, 4)
        else:
            reading(label, lambda: options.Init(self.table.Bytes, self.table.Pos))
        return Options(label, options)


@dataclass(frozen=True)
class StoredModel:
    """A graph of a file. Tensors are meant by their numbers, which all exist."""

    title: str
    """What errors call the model."""
    tensors: tuple[Tensor, ...]
    operators: tuple[StoredOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    content: bytes
    root: Any
    signature: Mapping[int, str] = field(default_factory=dict)
    """What the main graph's first signature calls outputs, by their tensors."""
    others: tuple[StoredModel, ...] = ()
    """Of the main graph: the other graphs of the file, from number 1 on, where its operators run such."""

    def other(self, index: int, caller: str) -> StoredModel:
        """Another graph of the file by its number there; ModelFileError where `caller` names one that there is not."""
        if not 1 <= index <= len(self.others):
            raise ModelFileError(
                f"{self.title}: {caller} runs graph {index}; the file has 1 to {len(self.others)} beside the main one"
            )
        return self.others[index - 1]

    def constant(self, tensor: Tensor) -> Array | None:
        """The values of a tensor that stands in the file, None where none do.

        Integers with scales are the real numbers that they stand for, scale (q - zero point), in float32. Raises
        ModelFileError where the bytes do not fill the shape, UnsupportedOperatorError for a form that is not read.
        """
        values = self._stored(tensor)
        if values is None:
            return None
        if tensor.kind == "BOOL":
            return np.asarray(values != 0)
        if not tensor.is_quantized:
            return values
        scales, zeros = self._columns(values, tensor)
        # The difference of integers of up to 16 bits is exact in float32, that of up to 32 in float64.
        exact = "float32" if values.itemsize <= 2 else "float64"
        with np.errstate(all="ignore"):
            shifted = values.astype(exact) - zeros.astype(exact)
            return np.asarray(shifted.astype(np.float32) * scales)

    def quantized_constant(self, tensor: Tensor) -> QuantizedConstant | None:
        """A constant of integers with scales as these; None for any other tensor."""
        values = self._stored(tensor) if tensor.is_quantized else None
        if values is None:
            return None
        if values.dtype == np.int64 and values.size and np.abs(values).max() <= np.iinfo(np.int32).max:
            values = values.astype(np.int32)
        scales, zeros = self._columns(values, tensor)
        return dequantized_constant(values, scales, zeros.astype(np.int32))

    def _stored(self, tensor: Tensor) -> Array | None:
        """The numbers that stand in the file for a tensor."""
        stored = reading(self.title, lambda: self._bytes(tensor.buffer))
        if not stored.size and 0 not in tensor.shape:
            return None
        if tensor.flaw:
            raise UnsupportedOperatorError(f"tensor {tensor.name} is stored {tensor.flaw}; store it as plain numbers")
        dtype = np.dtype(_DTYPES[tensor.readable_kind()])
        if tensor.sparsity is not None:
            return self._sparse(tensor, tensor.sparsity, stored, dtype)
        needed = math.prod(tensor.shape) * dtype.itemsize
        if stored.size != needed:
            raise ModelFileError(
                f"{self.title}: tensor {tensor.name} of {tensor.kind} and shape {tensor.shape} needs {needed} bytes, "
                f"its buffer holds {stored.size}; the file is damaged"
            )
        return np.frombuffer(stored.tobytes(), dtype).reshape(tensor.shape)

    def _sparse(self, tensor: Tensor, sparsity: Sparsity, stored: Array, dtype: np.dtype[Any]) -> Array:
        """The numbers of a sparse tensor in the places where they belong."""
        check_size(f"tensor {tensor.name}", tensor.shape, MAX_MADE)
        label = f"{self.title}: tensor {tensor.name}, which is sparse"
        return reading(label, lambda: sparsity.dense(np.frombuffer(stored.tobytes(), dtype), tensor.shape))

    def _bytes(self, buffer: int) -> Array:
        """What a buffer holds: in the flatbuffer, or behind it in files that are too large for one."""
        if not 0 <= buffer < self.root.BuffersLength():
            raise IndexError(f"buffer {buffer} does not exist")
        found = self.root.Buffers(buffer)
        begin, size = found.Offset(), found.Size()
        if begin > 1:
            if begin + size > len(self.content):
                raise ValueError(f"buffer {buffer} ends at byte {begin + size}")
            return np.frombuffer(self.content, np.uint8, size, begin)
        stored = found.DataAsNumpy()
        return stored if isinstance(stored, np.ndarray) else np.empty(0, np.uint8)

    def _columns(self, values: Array, tensor: Tensor) -> tuple[Array, Array]:
        """Scales, float32, and zero points as they broadcast to a tensor's integers."""
        # Older writers give a bias the axis of its weight.
        count, axis = len(tensor.scales), 0 if values.ndim == 1 else tensor.channel_axis
        zeros = tensor.zero_points or (0,)
        zeros = zeros * count if len(zeros) == 1 else zeros
        per_channel = count > 1 and 0 <= axis < values.ndim and values.shape[axis] == count
        if len(zeros) != count or (count > 1 and not per_channel):
            raise ModelFileError(
                f"{self.title}: tensor {tensor.name} of shape {tensor.shape} has {count} scales and {len(zeros)} zero "
                f"points along axis {axis}; one, or one for each index, are needed"
            )
        column = tuple(-1 if place == axis else 1 for place in range(values.ndim)) if per_channel else ()
        return np.asarray(tensor.scales, np.float32).reshape(column), np.asarray(zeros, np.int64).reshape(column)


def reading(title: str, read: Callable[[], _T]) -> _T:
    """What `read` gives; ModelFileError where the bytes are not what the schema's classes take them for."""
    try:
        return read()
    except (AttributeError, IndexError, OverflowError, struct.error, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{title}: the file is damaged or truncated: {reason}; export or copy it again") from None


def numbers(array: Any) -> tuple[Any, ...]:
    """A vector of the file as numbers; the schema's classes give 0 where there is none."""
    return tuple(array.tolist()) if isinstance(array, np.ndarray) else ()
