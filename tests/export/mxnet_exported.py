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
        if node["op"] == "null" and "attrs" in node
    }
    graph = mrt.from_mxnet(*written, shapes=shapes)
    assert {symbol.dtype for symbol in (*graph.inputs, *graph.symbols)} <= {"float64"}
    read = [{s.name: feeds[s.name].astype(np.float64).reshape(s.shape) for s in graph.inputs} for feeds in samples]
    return [graph.evaluate(feeds) for feeds in read]
