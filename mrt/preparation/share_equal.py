"""Computes once what several symbols compute alike."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Graph, GraphBuilder, Pass, PassResult, Symbol
from mrt.symbol.builder import keep, rewrite_graph


@dataclass(frozen=True)
class ShareEqual(Pass):
    """Leaves the first of the symbols that apply the same operator, with the same options, to the same inputs.

    Parameters are the same where dtype, shape and bytes are. Exporters write a mask for each layer that reads it, and a
    place in a cache for each cache that is written there.

    Outputs of the graph, states among them, and layers with weights stay: users know them by their names.
    """

    def run(self, graph: Graph) -> PassResult:
        known: dict[Hashable, Symbol] = {}
        named = {*graph.outputs}

        def part(source: Symbol, builder: GraphBuilder) -> Hashable:
            value = builder.value(source)
            return source if value is None else _content(value)

        def step(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            if symbol.channel_axis is not None:
                return None
            key = symbol.operator, *(part(source, builder) for source in inputs)
            if key not in known or symbol in named:
                known[key] = keep(symbol, inputs, builder)
            return known[key]

        return PassResult(rewrite_graph(graph, step))


def _content(value: Array) -> Hashable:
    digest = hashlib.sha256(np.ascontiguousarray(value).data).digest()
    return str(value.dtype), value.shape, digest
