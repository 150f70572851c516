"""Parameter files in the layout of relay.save_param_dict, which every version of TVM reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from mrt.symbol import Array

_PARAMETERS_MAGIC = 0xF7E58D4F05049CB7
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_CPU = 1
_INTEGER, _UNSIGNED = 0, 1
_TYPES = {
    "bool": (_UNSIGNED, 1),
    "int8": (_INTEGER, 8),
    "uint8": (_UNSIGNED, 8),
    "int16": (_INTEGER, 16),
    "int32": (_INTEGER, 32),
}
"""DLPack's type code and number of bits of each dtype of integer graphs."""


def params_to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """The file of arrays by name: magic, names, then as many tensors."""
    names = b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name in arrays)
    count = struct.pack("<Q", len(arrays))
    header = struct.pack("<QQ", _PARAMETERS_MAGIC, 0)
    return b"".join([header, count, names, count, *map(_tensor, arrays.values())])


def _tensor(array: Array) -> bytes:
    """magic, reserved, device, rank, type code, bits, lanes, shape, number of bytes, values."""
    code, bits = _TYPES[array.dtype.name]
    values = np.asarray(array, array.dtype.newbyteorder("<"), order="C").tobytes()
    return b"".join(
        [
            struct.pack("<QQiiiBBH", _TENSOR_MAGIC, 0, _CPU, 0, array.ndim, code, bits, 1),
            struct.pack(f"<{array.ndim}q", *array.shape),
            struct.pack("<q", len(values)),
            values,
        ]
    )
