"""Relay texts, parameter files and metadata for tests, written from the description of the format."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mrt.frontend.relay import from_relay
from mrt.symbol import Graph

VERSION = '#[version = "0.0.5"]\n'
PARAMETERS_MAGIC = 0xF7E58D4F05049CB7
TENSOR_MAGIC = 0xDD5E40F096B4A13F
_CODES = {"i": 0, "u": 1, "f": 2, "b": 1}


def function(result: str, lines: Sequence[str] = (), **arguments: str | tuple[int, ...]) -> str:
    """A text whose @main takes tensors of these shapes (float32) or types, and gives `result` after the lines."""
    given = ", ".join(f"%{name}: {kind if isinstance(kind, str) else tensor(kind)}" for name, kind in arguments.items())
    body = "".join(f"  {line};\n" for line in lines)
    return f"{VERSION}def @main({given}) {{\n{body}  {result}\n}}\n"


def tensor(shape: Sequence[int], dtype: str = "float32") -> str:
    return f"Tensor[({', '.join(map(str, shape))}), {dtype}]"


def record(array: np.ndarray) -> bytes:
    """An NDArray record."""
    bits = 1 if array.dtype == bool else array.dtype.itemsize * 8
    head = struct.pack("<QQiiiBBH", TENSOR_MAGIC, 0, 1, 0, array.ndim, _CODES[array.dtype.kind], bits, 1)
    return head + struct.pack(f"<{array.ndim}qq", *array.shape, array.nbytes) + array.tobytes()


def parameters(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A parameter file."""
    names = [name.encode() for name in arrays]
    parts = [struct.pack("<QQQ", PARAMETERS_MAGIC, 0, len(names))]
    parts += [struct.pack("<Q", len(name)) + name for name in names]
    parts.append(struct.pack("<Q", len(names)))
    return b"".join(parts + [record(array) for array in arrays.values()])


def metadata(*constants: np.ndarray | bytes) -> str:
    """The metadata section with these constants, of which bytes are taken as the record itself."""
    nodes: list[dict[str, object]] = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
        {"type_key": "Array", "data": list(range(3, 3 + len(constants)))},
        *({"type_key": "relay.Constant", "attrs": {"data": str(place)}} for place in range(len(constants))),
    ]
    records = [item if isinstance(item, bytes) else record(item) for item in constants]
    content = {"root": 1, "nodes": nodes, "b64ndarrays": [base64.b64encode(item).decode() for item in records]}
    return f"#[metadata]\n{json.dumps(content)}\n"


def evaluate(text: str, *feeds: np.ndarray, params: Mapping[str, np.ndarray] | None = None) -> list[np.ndarray]:
    """The outputs of what is read, for inputs in their order."""
    graph = from_relay(text, params)
    return run(graph, *feeds)


def one(call: str, *feeds: np.ndarray, constants: tuple[np.ndarray, ...] = (), **arguments: Any) -> np.ndarray:
    """What a call gives; its arguments have the shapes and dtypes of the feeds unless they are told."""
    names = arguments or {name: tensor(feed.shape, feed.dtype.name) for name, feed in zip("xyz", feeds, strict=False)}
    (output,) = evaluate(function(call, **names) + (metadata(*constants) if constants else ""), *feeds)
    return output


def run(graph: Graph, *feeds: np.ndarray) -> list[np.ndarray]:
    return graph.evaluate({symbol.name: value for symbol, value in zip(graph.inputs, feeds, strict=True)})


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers in (-2, 2)."""
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype("float32")
