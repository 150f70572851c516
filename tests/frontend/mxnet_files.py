"""MXNet files made by hand: parameter files in every layout, and symbol JSON of small graphs."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LAYOUTS = {"legacy": None, "V1": 0xF993FAC8, "V2": 0xF993FAC9, "V3": 0xF993FACA}
_CODES = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6, "bool": 7}


def record(shape: Sequence[int], content: bytes, code: int = 0, layout: str = "V2", storage: int = 0) -> bytes:
    """An array whose header says what is given, whatever its content is."""
    magic = LAYOUTS[layout]
    if magic is None:
        head = struct.pack(f"<I{len(shape)}I", len(shape), *shape)
    else:
        stated = struct.pack("<i", storage) if layout in ("V2", "V3") else b""
        head = struct.pack("<I", magic) + stated + struct.pack(f"<i{len(shape)}q", len(shape), *shape)
    return head + struct.pack("<3i", 1, 0, code) + content


def params_file(records: Sequence[bytes], names: Sequence[str], counts: tuple[int, int] | None = None) -> bytes:
    """A file of these records; `counts` are what it says of how many arrays and names there are."""
    arrays, named = counts or (len(records), len(names))
    texts = b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name in names)
    return struct.pack("<3Q", 0x112, 0, arrays) + b"".join(records) + struct.pack("<Q", named) + texts


def write_params(arrays: Mapping[str, np.ndarray[Any, Any]], layout: str = "V2") -> bytes:
    records = [record(a.shape, a.tobytes(), _CODES[a.dtype.name], layout) for a in arrays.values()]
    return params_file(records, [*arrays])


def symbol_json(
    *nodes: tuple[str, str, Sequence[Sequence[int]]] | tuple[str, str, Sequence[Sequence[int]], Mapping[str, str]],
    heads: Sequence[Sequence[int]] | None = None,
    key: str = "attrs",
) -> str:
    """A symbol JSON of (operator, name, inputs, attributes); the last node is the output unless heads say otherwise."""
    entries = [
        {"op": op, "name": name, "inputs": [[*source, 0][:3] for source in inputs], key: dict(*attributes)}
        for op, name, inputs, *attributes in nodes
    ]
    return json.dumps({"nodes": entries, "arg_nodes": [], "heads": heads or [[len(nodes) - 1, 0, 0]]})


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Normal float32, different for each shape and seed."""
    return np.random.default_rng([seed, math.prod(shape), *shape]).standard_normal(shape).astype(np.float32)
