"""Exporting to Relay, and running the text by reading it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exported import Feeds, facts

import mrt
from mrt.export.relay import to_relay
from mrt.symbol import Array, Graph
from mrt.symbol.quantized_tensor import TensorQuantization


@dataclass(frozen=True)
class RelayModule:
    """A text with its parameters, and what the graph calls the function's inputs, in order."""

    text: str
    params: bytes
    inputs: tuple[str, ...]


def exported(graph: Graph, inputs: Sequence[TensorQuantization] | None = None) -> RelayModule:
    outputs = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, 0, 0) for s in graph.outputs]
    written = to_relay(graph, facts(graph) if inputs is None else inputs, outputs, "digest")
    return RelayModule(*written, tuple(symbol.name for symbol in graph.inputs))


def load(graph: Graph, paths: Sequence[Path]) -> RelayModule:
    """What a quantized model's `to_relay` wrote of its graph."""
    params, text = paths
    return RelayModule(text.read_text(), params.read_bytes(), tuple(symbol.name for symbol in graph.inputs))


def run(module: RelayModule, samples: Sequence[Feeds]) -> list[list[Array]]:
    """What the text means by Relay's reader, for each sample."""
    graph = mrt.from_relay(module.text, module.params)
    names = [symbol.name for symbol in graph.inputs]
    ordered = [[feeds[name] for name in module.inputs] for feeds in samples]
    return [graph.evaluate(dict(zip(names, values, strict=True))) for values in ordered]
