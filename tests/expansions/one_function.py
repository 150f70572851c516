"""Networks of one function: what they are quantized with, and what their integers stand for."""

from __future__ import annotations

from functools import cache

import numpy as np

from mrt.calibration import Range
from mrt.quantization.integer.integer_graph import IntegerGraph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, Operator


def configured(quantizer: str = "symmetric", bits: int = 8, output: int = 16) -> QuantizationConfig:
    activation = {"quantizer": quantizer, "bits": bits}
    return QuantizationConfig.model_validate({"activation": activation, "output": {"bits": output}})


def ranges(graph: Graph, x: np.ndarray) -> dict[str, Range]:
    values = {symbol.name: value for symbol, value in graph.walk({"x": x})}
    return {name: Range(float(v.min()), float(v.max())) for name, v in values.items()}


@cache
def steepest(operator: Operator, ends: tuple[float, float]) -> float:
    """The largest slope of a function between two ends, by finite differences."""
    x = np.linspace(*ends, 400_001)
    return float(np.abs(np.diff(operator.evaluate(x)) / np.diff(x)).max())


def run(integer: IntegerGraph, x: np.ndarray) -> np.ndarray:
    """The real values that the integer graph gives for real inputs."""
    (symbol, target), output = integer.inputs[0], integer.outputs[0]
    integers = np.clip(np.rint(x / np.float32(target.scale)) + target.zero_point, target.lo, target.hi)
    (found,) = integer.graph.evaluate({"x": integers.astype(symbol.dtype)})
    return output.step * (found.astype(np.float64) - output.zero_point)
