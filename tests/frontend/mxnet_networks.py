"""Small MXNet symbols in JSON."""

from __future__ import annotations

import json
from typing import Any

from mxnet_files import random, symbol_json

X = {"x": (2, 3)}


def relu(op: str = "relu", key: str = "attrs", **attributes: str) -> str:
    """x -> one operator."""
    return symbol_json(("null", "x", []), (op, "y", [[0, 0]], attributes), key=key)


def edited(text: str, **changes: Any) -> str:
    return json.dumps(json.loads(text) | changes)


def dense(**attributes: str) -> str:
    """A FullyConnected of 4 outputs on x, its shape hinted as `attributes` say."""
    return symbol_json(
        ("null", "x", [], attributes),
        ("null", "fc_weight", [], {"__shape__": "(4, 0)"}),
        ("null", "fc_bias", []),
        ("FullyConnected", "fc", [[0, 0], [1, 0], [2, 0]], {"num_hidden": "4"}),
    )


WEIGHTS = {"arg:fc_weight": random(4, 3), "arg:fc_bias": random(4)}


def small() -> str:
    return symbol_json(
        ("null", "x", [], {"__shape__": "(2, 1, 6, 6)"}),
        ("null", "w", []),
        ("Convolution", "c", [[0, 0], [1, 0]], {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"}),
        ("Pooling", "p", [[2, 0]], {"kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": "avg"}),
        ("SliceChannel", "s", [[3, 0]], {"num_outputs": "2", "axis": "1"}),
        ("Reshape", "r", [[4, 1]], {"shape": "(0, -3, -4, 2, -1)"}),
        ("broadcast_axis", "b", [[5, 0]], {"axis": "3", "size": "2"}),
        heads=[[6, 0], [4, 0]],
    )


KERNEL = {"w": random(4, 1, 3, 3)}
