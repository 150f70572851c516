"""TVM's binary tensors: one NDArray record, and the parameter file that relay.save_param_dict writes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from mrt.errors import ModelFileError
from mrt.symbol import Array

_PARAMETERS_MAGIC = 0xF7E58D4F05049CB7
_TENSOR_MAGIC = 0xDD5E40F096B4A13F

_DTYPES = {(0, 8): "i1", (0, 16): "i2", (0, 32): "i4", (0, 64): "i8", (1, 1): "?", (1, 8): "u1", (1, 16): "u2"} | {
    (1, 32): "u4",
    (1, 64): "u8",
    (2, 16): "f2",
    (2, 32): "f4",
    (2, 64): "f8",
    (4, 16): "u2",
}
"""NumPy's little-endian dtype of each type code and number of bits; bfloat16 (4) by its bits."""
_BFLOAT_CODE = 4
_MOST_AXES = 32


class _Bytes:
    """Bytes read from front to back. Sizes that a header states are compared with what is there before use."""

    def __init__(self, content: bytes, title: str) -> None:
        self._content = memoryview(content)
        self._title = title
        self._place = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._place

    def take(self, count: int, what: str) -> memoryview:
        if not 0 <= count <= self.left:
            raise self.error(f"{what} needs {count} bytes at byte {self._place}, {max(self.left, 0)} are left")
        self._place += count
        return self._content[self._place - count : self._place]

    def numbers(self, form: str, what: str) -> tuple[int, ...]:
        """Little-endian numbers, as the struct module writes their form."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))

    def error(self, found: str) -> ModelFileError:
        return ModelFileError(f"{self._title}: {found}; the file is damaged or no such file: save or copy it again")


def read_parameters(path: Path) -> dict[str, Array]:
    """The arrays of a parameter file by name; ModelFileError where it cannot be read or is malformed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    return parse_parameters(content, str(path))


def parse_parameters(content: bytes, title: str) -> dict[str, Array]:
    """What relay.save_param_dict wrote: magic, names, then as many tensors. `title` is what errors call the content.

    Raises ModelFileError where it is anything else.
    """
    data = _Bytes(content, title)
    magic, _ = data.numbers("QQ", "the header")
    if magic != _PARAMETERS_MAGIC:
        raise data.error(
            f"it begins with {magic:#x}; {_PARAMETERS_MAGIC:#x} is needed, as relay.save_param_dict writes"
        )
    (count,) = data.numbers("Q", "the number of names")
    # Each name has a length of 8 bytes, so that a count beyond what is left is a lie.
    if count > data.left // 8:
        raise data.error(f"it states {count} names in {data.left} bytes")
    names = [_name(data) for _ in range(count)]
    (tensors,) = data.numbers("Q", "the number of tensors")
    if tensors != count:
        raise data.error(f"it states {count} names and {tensors} tensors")
    if len(set(names)) != count:
        raise data.error("two parameters have one name")
    arrays = {name: _tensor(data, f"parameter {name}") for name in names}
    if data.left:
        raise data.error(f"{data.left} bytes follow the last tensor")
    return arrays


def parse_tensor(content: bytes, title: str) -> Array:
    """One NDArray record; ModelFileError where it is malformed."""
    data = _Bytes(content, title)
    array = _tensor(data, "the tensor")
    if data.left:
        raise data.error(f"{data.left} bytes follow the tensor")
    return array


def _name(data: _Bytes) -> str:
    (length,) = data.numbers("Q", "the length of a name")
    try:
        return bytes(data.take(length, "a name")).decode()
    except UnicodeDecodeError:
        raise data.error("a name is no UTF-8 text") from None


def _tensor(data: _Bytes, what: str) -> Array:
    """magic, reserved, device, rank, dtype, shape, number of bytes, values; bfloat16 as float32, which holds it."""
    magic, _ = data.numbers("QQ", what)
    if magic != _TENSOR_MAGIC:
        raise data.error(f"{what} begins with {magic:#x}; {_TENSOR_MAGIC:#x} is needed")
    _, _, rank, code, bits, lanes = data.numbers("iiiBBH", what)
    if not 0 <= rank <= _MOST_AXES:
        raise data.error(f"{what} has {rank} axes; 0 to {_MOST_AXES} are needed")
    if (code, bits) not in _DTYPES or lanes != 1:
        raise data.error(f"{what} has type code {code} of {bits} bits and {lanes} lanes, which is not known")
    dtype = np.dtype("<" + _DTYPES[code, bits])
    shape = data.numbers(f"{rank}q", f"the shape of {what}")
    (size,) = data.numbers("q", f"the size of {what}")
    if min(shape, default=0) < 0 or size != math.prod(shape) * dtype.itemsize:
        raise data.error(f"{what} has shape {shape} and {size} bytes; {dtype.itemsize} for each element are needed")
    array = np.frombuffer(data.take(size, f"the values of {what}"), dtype).reshape(shape)
    if code == _BFLOAT_CODE:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(dtype.newbyteorder("="))
