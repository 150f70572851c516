"""From what quantization made to the quantized model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mrt.calibration import Range
from mrt.certificate import derive
from mrt.errors import QuantizationError
from mrt.model import QuantizedModel, knowing
from mrt.quantization.integer.integer_graph import IntegerGraph, input_quantization
from mrt.symbol import Graph, Interval
from mrt.symbol.quantized_tensor import TensorQuantization


def assemble(
    integer: IntegerGraph,
    postprocess: Graph | None,
    ranges: Mapping[str, Range],
    notes: Sequence[str] = (),
    network: Graph | None = None,
) -> QuantizedModel:
    """The model of an integer graph and its float tail; notes: what preparation changed, before those of `integer`.

    network: the float network as read, which names the outputs.
    """
    inputs = tuple(input_quantization(symbol, target) for symbol, target in integer.inputs)
    names = {symbol.name: Interval.of(t.lo, t.hi, symbol.shape) for symbol, t in integer.inputs}
    bounds = derive(integer.graph, names)
    outputs = tuple(
        TensorQuantization(
            q.symbol.name,
            q.symbol.shape,
            q.symbol.dtype,
            np.float64(q.step),
            q.zero_point,
            bounds[q.symbol.name].lo,
            bounds[q.symbol.name].hi,
        )
        for q in integer.outputs
    )
    for entry in (*inputs, *outputs):
        if entry.defect:
            raise QuantizationError(f"{entry.defect}; scale the network's weights or data")
    model = QuantizedModel(
        integer.graph,
        inputs,
        outputs,
        postprocess,
        {name: replace(found, channels=()) for name, found in ranges.items()},
        integer.scales,
        integer.zero_points,
        (*notes, *integer.notes),
        integer.corrections,
        () if network is None else network.titles,
        network,
    )
    return knowing(model, facts=bounds)
