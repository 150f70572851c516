"""A causal convolution that keeps its last columns, as an ONNX file with a state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TAPS, CHANNELS, STEP = 4, 3, 2
"""Of the causal convolution below: it takes STEP new columns at a time and keeps the TAPS − 1 before them."""
WEIGHT = np.random.default_rng(0).normal(0, 0.5, (5, CHANNELS, TAPS)).astype(np.float32)
SIGNAL = np.random.default_rng(1).uniform(-1, 1, (1000, CHANNELS, STEP)).astype(np.float32)


def causal_file(path: Path) -> Path:
    """An ONNX file whose kept columns are the input `past` and the output `kept`."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["joined"], axis=2),
        helper.make_node("Conv", ["joined", "w"], ["y"]),
        helper.make_node("Slice", ["joined", "begin", "end", "axis"], ["kept"]),
    ]
    constants = {"w": WEIGHT, "begin": np.array([STEP]), "end": np.array([STEP + TAPS - 1]), "axis": np.array([2])}
    inputs = {"x": ("n", CHANNELS, STEP), "past": ("n", CHANNELS, TAPS - 1)}
    return saved(path, nodes, inputs, ["kept", "y"], constants)


def saved(
    path: Path, nodes: list[Any], inputs: Mapping[str, Any], outputs: list[str], constants: Mapping[str, Any]
) -> Path:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def convolved(signal: np.ndarray) -> np.ndarray:
    """The causal convolution of the whole signal at once in float64, cut into the steps of the stream."""
    steps = len(signal)
    columns = signal.astype(np.float64).transpose(1, 0, 2).reshape(CHANNELS, -1)
    padded = np.concatenate([np.zeros((CHANNELS, TAPS - 1)), columns], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, TAPS, axis=1)
    return np.einsum("ock,ctk->ot", WEIGHT, windows).reshape(5, steps, STEP).transpose(1, 0, 2)


def sqnr(reference: np.ndarray, measured: np.ndarray) -> float:
    return float(10 * np.log10(np.square(reference).sum() / np.square(reference - measured).sum()))
