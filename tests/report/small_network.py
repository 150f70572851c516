"""A float network of three convolutions and a sum, and its integers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import mrt
from mrt.calibration import CalibrationConfig, calibrate
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.needs import needs_of
from mrt.report.measure import Subject
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType, find_operator
from mrt.symbol.operators.convolution import Convolution

CHANNELS = 4


def small_graph(spread: float = 1.0) -> Graph:
    """spread: how many times as large the first channel of conv1 is as the others."""
    random, builder = np.random.default_rng(3), GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 8, 8)))

    def conv(name: str, source: object, inputs: int) -> object:
        values = random.standard_normal((CHANNELS, inputs, 3, 3)).astype(np.float32)
        values[0] *= spread if name == "conv1" else 1.0
        weight = builder.parameter(f"{name}_weight", values)
        operator = Convolution(kernel=(3, 3), pad=(1, 1), num_filter=CHANNELS, no_bias=True)
        return builder.apply(find_operator("relu")(), [builder.apply(operator, [source, weight], name)], f"{name}_relu")

    first = conv("conv1", x, 3)
    second = conv("conv2", first, CHANNELS)
    added = builder.apply(find_operator("elemwise_add")(), [first, second], "sum")
    return builder.graph([conv("conv3", added, CHANNELS)])


def samples(count: int = 8) -> np.ndarray:
    return np.random.default_rng(4).uniform(-1, 1, (count, 3, 8, 8)).astype(np.float32)


CONFIG = mrt.QuantizationConfig(preset="mrt")


@cache
def small_model(spread: float = 1.0) -> mrt.QuantizedModel:
    return mrt.quantize(small_graph(spread), samples(), CONFIG, runner=NumpyRunner(), progress=None)


def small_subject(spread: float = 1.0, **changes: Any) -> Subject:
    """What a report is made of, simulated by NumPy, without a compiled module. changes: replace its fields."""
    graph, data, options = small_graph(spread), samples(), CalibrationConfig()
    subject = Subject(
        name="small",
        file="small.onnx",
        original=graph,
        prepared=graph,
        model=small_model(spread),
        module=None,
        data=None,
        source="data.test",
        samples=8,
        asked=CONFIG,
        chosen=CONFIG,
        observed=calibrate(graph, [data], needs_of(graph, CONFIG, True), options, NumpyRunner()),
        calibration=Samples([data], options, NumpyRunner()),
        seconds={"compile": 0.1},
    )
    return replace(subject, **changes)
