"""MXNet's `.params` files: named arrays in the layouts of all its versions.

A file is, little-endian: u64 magic, u64 0, u64 number of arrays, the arrays, u64 number of names (as many, or 0), and
the names, each u64 length and UTF-8 text. An array begins with an u32 that tells its layout:

    V2, V3    0xF993FAC9, 0xF993FACA: i32 storage type, shape, context, i32 dtype, values
    V1        0xF993FAC8: shape, context, i32 dtype, values
    legacy    the rank itself: u32 lengths, context, i32 dtype, values

A shape is i32 rank and i64 lengths, a context two i32. Where there is no array the record ends with its shape: rank 0
and, in V3, where a shape of rank 0 is that of one number, rank -1.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import ModelFileError
from mrt.symbol import Array

PARAMS_MAGIC = struct.pack("<Q", 0x112)
"""The first bytes of a `.params` file."""

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_MAX_RANK = 32
_DTYPES = {0: "<f4", 1: "<f8", 2: "<f2", 3: "u1", 4: "<i4", 5: "i1", 6: "<i8", 7: "?", 12: "<u2"}
"""NumPy's dtype for each of MXNet's; that of bfloat16, which NumPy lacks, holds its bits."""
_BFLOAT16 = 12
_STORAGES = {0: "dense", 1: "row_sparse", 2: "csr"}
_INDEX_ARRAYS = {1: 1, 2: 2}
"""How many arrays of indices stand in a sparse record: of rows; of where rows begin, and columns."""


def read_params(content: bytes, title: str) -> dict[str, Array]:
    """The arrays of a `.params` file by name, without the prefixes "arg:" and "aux:"; bfloat16 as float32.

    title: what errors call the file. Raises ModelFileError where it is truncated, malformed, no such file, or holds
    arrays that have no name, that share one, or that are sparse.
    """
    source = _Source(content, title)
    if content[: len(PARAMS_MAGIC)] != PARAMS_MAGIC:
        raise ModelFileError(f"{title} is no MXNet parameter file: it does not begin with {PARAMS_MAGIC.hex()}")
    source.take("QQ")
    arrays = [_read_array(source, index) for index in range(source.count("arrays"))]
    names = [_read_name(source, index) for index in range(source.count("names"))]
    if source.rest:
        raise ModelFileError(f"{title} has {source.rest} bytes after its end; it is damaged")
    if arrays and not names:
        raise ModelFileError(f"{title} holds {len(arrays)} arrays without names; save a mapping of names to arrays")
    if len(names) != len(arrays):
        raise ModelFileError(f"{title} holds {len(arrays)} arrays, but {len(names)} names; it is damaged")
    sparse = [f"{name} ({found})" for name, found in zip(names, arrays, strict=True) if isinstance(found, str)]
    if sparse:
        raise ModelFileError(
            f"{title} holds sparse arrays, which are not read: {', '.join(sparse)}; store them densely"
        )
    dense = [found for found in arrays if not isinstance(found, str)]
    return dict(zip(without_prefixes(names, title), dense, strict=True))


def without_prefixes(names: Sequence[str], title: str) -> list[str]:
    """The names without "arg:" and "aux:"; ModelFileError where two are the same then."""
    plain = [name[4:] if name.startswith(("arg:", "aux:")) else name for name in names]
    twice = [name for name, count in Counter(plain).items() if count > 1]
    if twice:
        raise ModelFileError(f"{title} holds two arrays called {', '.join(twice)}; names must be unique")
    return plain


@dataclass
class _Source:
    """The bytes of a file and how far they have been read. Nothing is trusted that they do not hold."""

    content: bytes
    title: str
    at: int = 0

    @property
    def rest(self) -> int:
        return len(self.content) - self.at

    def take(self, layout: str) -> tuple[int, ...]:
        """The numbers of a struct layout."""
        packed = struct.Struct(f"<{layout}")
        return packed.unpack(self.bytes(packed.size))

    def count(self, what: str) -> int:
        """A number of things of at least 4 bytes each; ModelFileError where the rest cannot hold them."""
        (count,) = self.take("Q")
        if count * 4 > self.rest:
            raise ModelFileError(f"{self.title} says that it holds {count} {what}, but ends before; it is truncated")
        return count

    def bytes(self, length: int) -> bytes:
        if length > self.rest:
            raise ModelFileError(
                f"{self.title} ends at byte {len(self.content)}, where {length} more from {self.at} on are needed; "
                "it is truncated"
            )
        self.at += length
        return self.content[self.at - length : self.at]


def _read_name(source: _Source, index: int) -> str:
    (length,) = source.take("Q")
    try:
        return source.bytes(length).decode()
    except UnicodeDecodeError:
        raise ModelFileError(f"{source.title}: name {index} is no UTF-8 text; the file is damaged") from None


def _read_array(source: _Source, index: int) -> Array | str:
    """The next array, or the storage type of a sparse one."""
    (version,) = source.take("I")
    storage = 0
    if version in (_V2, _V3):
        (storage,) = source.take("i")
        if storage not in _STORAGES:
            raise _damaged(source, index, f"has storage type {storage}; one of {[*_STORAGES]} is needed")
    elif version != _V1 and version > _MAX_RANK:
        raise _damaged(source, index, f"begins with {version:#x}, which is no layout")
    stored = _read_shape(source, index) if _INDEX_ARRAYS.get(storage) else ()
    shape = _legacy_shape(source, version) if version <= _MAX_RANK else _read_shape(source, index)
    if shape is None or (shape == () and version != _V3):
        return np.zeros(0, np.float32)
    source.take("ii")
    dtype = _read_dtype(source, index)
    if storage:
        _skip_sparse(source, index, stored or (), dtype, _INDEX_ARRAYS[storage])
        return _STORAGES[storage]
    return _values(source, index, shape, dtype)


def _legacy_shape(source: _Source, rank: int) -> tuple[int, ...]:
    return source.take(f"{rank}I")


def _read_shape(source: _Source, index: int) -> tuple[int, ...] | None:
    """A shape, None where its rank is not known."""
    (rank,) = source.take("i")
    if rank == -1:
        return None
    if not 0 <= rank <= _MAX_RANK:
        raise _damaged(source, index, f"has rank {rank}; 0 to {_MAX_RANK} is needed")
    shape = source.take(f"{rank}q")
    if min(shape, default=0) < 0:
        raise _damaged(source, index, f"has shape {shape}; lengths of at least 0 are needed")
    return shape


def _read_dtype(source: _Source, index: int) -> int:
    (code,) = source.take("i")
    if code not in _DTYPES:
        raise _damaged(source, index, f"has dtype {code}; one of {[*_DTYPES]} is needed")
    return code


def _values(source: _Source, index: int, shape: tuple[int, ...], code: int) -> Array:
    dtype = np.dtype(_DTYPES[code])
    content = source.bytes(math.prod(shape) * dtype.itemsize)
    try:
        array = np.frombuffer(content, dtype).reshape(shape)
    except ValueError:
        raise _damaged(source, index, f"has shape {shape}, which no array can have") from None
    return (array.astype(np.uint32) << 16).view(np.float32) if code == _BFLOAT16 else array


def _skip_sparse(source: _Source, index: int, stored: tuple[int, ...], code: int, index_arrays: int) -> None:
    """Reads past a sparse array. How many values it stores its last array of indices says, whatever `stored` says."""
    indices = []
    for _ in range(index_arrays):
        kind = _read_dtype(source, index)
        indices.append((kind, _read_shape(source, index) or (0,)))
    _values(source, index, (*indices[-1][1][:1], *stored[1:]), code)
    for kind, shape in indices:
        _values(source, index, shape, kind)


def _damaged(source: _Source, index: int, what: str) -> ModelFileError:
    return ModelFileError(f"{source.title}: array {index} {what}; the file is damaged")
