"""Reads graphs and arrays that real MXNet saved, as far as operators are covered."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mrt.errors import UnsupportedOperatorError
from mrt.symbol import Graph, TensorType
from mrt.symbol.mxnet_json import graph_from_json

_V2 = 0xF993FAC9
_DTYPES = {0: "<f4", 1: "<f8", 2: "<f2", 3: "u1", 4: "<i4", 5: "i1", 6: "<i8", 7: "?"}


def read_params(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The dense V2 arrays of a `.params` file by their names without "arg:" and "aux:"."""
    data, at = path.read_bytes(), 0

    def take(layout: str) -> tuple[Any, ...]:
        nonlocal at
        values = struct.unpack_from("<" + layout, data, at)
        at += struct.calcsize("<" + layout)
        return values

    magic, _, count = take("QQQ")
    assert magic == 0x112
    arrays = []
    for _ in range(count):
        version, storage, rank = take("Iii")
        assert (version, storage) == (_V2, 0)
        shape = take(f"{rank}q")
        *_, code = take("iii")
        array = np.frombuffer(data, _DTYPES[code], int(np.prod(shape)), at).reshape(shape)
        at += array.nbytes
        arrays.append(array)
    (named,) = take("Q")
    names = [take(f"{take('Q')[0]}s")[0].decode().split(":", 1)[-1] for _ in range(named)]
    return dict(zip(names, arrays, strict=True))


@dataclass(frozen=True)
class Case:
    """One output of a graph saved by MXNet, with the samples it was run on (leading sample axis)."""

    name: str
    graph: Graph
    inputs: dict[str, np.ndarray[Any, Any]]
    expected: np.ndarray[Any, Any]


def covered_outputs(folder: Path) -> Iterator[Case]:
    """Every output of a fixture whose operators are all covered."""
    text = (folder / "model-symbol.json").read_text()
    content, arrays = json.loads(text), np.load(folder / "io.npz")
    parameters = read_params(folder / "model-0000.params")
    inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in_")}
    types = {name: TensorType(value.shape[1:], value.dtype.name) for name, value in inputs.items()}
    for index, head in enumerate(content["heads"]):
        try:
            graph = graph_from_json(json.dumps(_only(content, head)), parameters, types)
        except UnsupportedOperatorError:
            continue
        fed = {symbol.name: inputs[symbol.name] for symbol in graph.inputs}
        yield Case(f"{folder.name}-{graph.outputs[0].name}", graph, fed, arrays[f"out_{index}"])


def _only(content: dict[str, Any], head: list[int]) -> dict[str, Any]:
    """The symbol JSON with one head and what it needs."""
    nodes, needed, pending = content["nodes"], set(), [head[0]]
    while pending:
        place = pending.pop()
        if place not in needed:
            needed.add(place)
            pending += [source[0] for source in nodes[place]["inputs"]]
    new = {old: place for place, old in enumerate(sorted(needed))}
    kept = [
        {**nodes[old], "inputs": [[new[source[0]], *source[1:]] for source in nodes[old]["inputs"]]}
        for old in sorted(needed)
    ]
    return {**content, "nodes": kept, "heads": [[new[head[0]], *head[1:]]]}
