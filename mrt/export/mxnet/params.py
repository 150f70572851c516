"""Parameter files as MXNet 1.x writes them: named dense arrays in its layout V2."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from mrt.symbol import Array
from mrt.symbol.symbol_json import DTYPE_CODES

_FILE_MAGIC = 0x112
_V2 = 0xF993FAC9
_DENSE = 0
_CPU = 1


def params_to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """The file of arrays by the names of their variables: magic, arrays, names as checkpoints have them."""
    count = struct.pack("<Q", len(arrays))
    names = [f"arg:{name}".encode() for name in arrays]
    return b"".join(
        [
            struct.pack("<QQ", _FILE_MAGIC, 0),
            count,
            *map(_array, arrays.values()),
            count,
            *(struct.pack("<Q", len(name)) + name for name in names),
        ]
    )


def _array(array: Array) -> bytes:
    """version, storage type, shape, context, dtype, values."""
    header = struct.pack(f"<Iii{array.ndim}q", _V2, _DENSE, array.ndim, *array.shape)
    values = np.asarray(array, array.dtype.newbyteorder("<"), order="C").tobytes()
    return header + struct.pack("<iii", _CPU, 0, DTYPE_CODES[array.dtype.name]) + values
