"""What a layer is, as far as the float network alone says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mrt.quantization.cost import multiplications
from mrt.report.layers import FloatLayer, channels_of, detail_of, follower_names, kind_of_layer, reads_of
from mrt.symbol import Graph


def described(layer: FloatLayer, graph: Graph, owner: Mapping[str, FloatLayer]) -> dict[str, Any]:
    """The first facts of a `Layer`."""
    return {
        "id": layer.place,
        "name": layer.end.name,
        "head": layer.head.name,
        "symbols": [symbol.name for symbol in layer.symbols],
        "kind": kind_of_layer(layer, graph),
        "operator": "input" if layer.head.is_variable else layer.head.op,
        "detail": detail_of(layer),
        "channels": channels_of(layer, graph),
        "followers": list(follower_names(layer, graph)),
        "shape": list(layer.end.shape),
        "reads": reads_of(layer, owner),
        "products": sum(multiplications(symbol) for symbol in layer.symbols if not symbol.is_variable),
    }
