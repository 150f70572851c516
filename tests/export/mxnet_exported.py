"""Exporting to MXNet, and running the checkpoint by reading it back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from exported import Feeds, facts

import mrt
from mrt.export.mxnet import to_mxnet
from mrt.symbol import Array, Graph
from mrt.symbol.quantized_tensor import TensorQuantization


def exported(graph: Graph, inputs: Sequence[TensorQuantization] | None = None) -> tuple[str, bytes]:
    outputs = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, 0, 0) for s in graph.outputs]
    return to_mxnet(graph, facts(graph) if inputs is None else inputs, outputs, "digest")


def load(graph: Graph, paths: Sequence[Path]) -> tuple[str, bytes]:
    """What a quantized model's `to_mxnet` wrote."""
    params, text = paths
    return text.read_text(), params.read_bytes()


def run(written: tuple[str, bytes], samples: Sequence[Feeds]) -> list[list[Array]]:
    """What the checkpoint means by MXNet's reader, every tensor being float64."""
    # A shape that is given tells an input from a weight that was forgotten.
    shapes = {
        node["name"]: [int(length) for length in re.findall(r"\d+", node["attrs"]["__shape__"])]
        for node in json.loads(written[0])["nodes"]
        if node["op"] == "null" and "__shape__" in node.get("attrs", {})
    }
    graph = mrt.from_mxnet(*written, shapes=shapes)
    assert {symbol.dtype for symbol in (*graph.inputs, *graph.symbols)} <= {"float64"}
    read = [{s.name: feeds[s.name].astype(np.float64).reshape(s.shape) for s in graph.inputs} for feeds in samples]
    return [graph.evaluate(feeds) for feeds in read]


def saved_by_mxnet(text: str) -> str:
    """The symbol JSON that MXNet 1.9.1 writes of what it loaded: nodes depth first from the outputs, each with its
    attributes, and no attributes of the graph but the version."""
    content = json.loads(text)
    nodes, heads, places, order = content["nodes"], content["heads"], {}, []
    stack = [(head[0], False) for head in reversed(heads)]
    while stack:
        place, is_done = stack.pop()
        if place in places:
            continue
        if is_done:
            places[place] = len(order)
            order.append(nodes[place])
        else:
            stack.append((place, True))
            stack += [(source[0], False) for source in reversed(nodes[place]["inputs"])]
    moved = [{**node, "inputs": [[places[p], *rest] for p, *rest in node["inputs"]]} for node in order]
    return json.dumps(
        {
            "nodes": moved,
            "arg_nodes": [place for place, node in enumerate(moved) if node["op"] == "null"],
            "node_row_ptr": list(range(len(moved) + 1)),
            "heads": [[places[place], *rest] for place, *rest in heads],
            "attrs": {"mxnet_version": ["int", 10901]},
        },
        indent=2,
    )
