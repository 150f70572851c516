"""Outputs that are joined of parts of other ranges, as boxes and their scores: each part is resolved."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.transform import Concat, Transpose
from tests.matrix import QUANTIZERS
from tests.quantization.networks import observe, proven_bounds, quantize_and_run, random_samples

BOXES = 4
"""Channels of boxes, before those of scores."""


def head(largest: float, turned: bool) -> Graph:
    """Boxes of up to about `largest`, and scores below 1 that hardly ever exceed a tenth."""
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((1, channels, 50))) for name, channels in (("x", BOXES), ("y", 6)))
    boxes = builder.apply(BroadcastMul(), [x, builder.parameter("stride", np.full((1, 1, 1), largest / 4, np.float32))])
    logits = builder.apply(BroadcastAdd(), [y, builder.parameter("prior", np.full((1, 1, 1), -4.0, np.float32))])
    symbol = builder.apply(Concat(), [boxes, builder.apply(Sigmoid(), [logits], "scores")], "out")
    return builder.graph([builder.apply(Transpose((0, 2, 1)), [symbol], "turned") if turned else symbol])


def parts(graph: Graph, config: QuantizationConfig) -> tuple[float, float, int]:
    """The SQNR of boxes and of scores, in dB, and the bits of the output."""
    samples = random_samples(graph)
    outcome = quantize_and_run(graph, samples, config, observe(graph, samples))
    axis = 2 if graph.outputs[0].shape[1] == 50 else 1
    pairs = (np.moveaxis(np.concatenate([y[0] for y in each]), axis, 0) for each in (outcome.real, outcome.approximate))
    real, found = pairs
    bits = proven_bounds(outcome.integer)[outcome.integer.outputs[0].symbol.name].bits
    first, second = (
        float(10 * np.log10(np.square(real[part]).sum() / np.square((real - found)[part]).sum()))
        for part in (slice(0, BOXES), slice(BOXES, None))
    )
    return first, second, bits


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_scores_are_resolved_beside_boxes(turned: bool, quantizer: str) -> None:
    """At 16 bits of one scale scores have steps of a fiftieth; boxes are as good as their 12 bits allow."""
    given = {"activation": {"quantizer": quantizer, "bits": 12}}
    boxes, scores, bits = parts(head(640.0, turned), QuantizationConfig.model_validate(given))
    assert boxes > 60 and scores > 45 and 20 <= bits <= 24
    asked = QuantizationConfig.model_validate({**given, "output": {"bits": 16}})
    boxes_asked, scores_asked, bits_asked = parts(head(640.0, turned), asked)
    assert bits_asked == 16 and scores_asked < 20 and boxes_asked > 60


def test_parts_of_one_range_have_sixteen_bits() -> None:
    assert parts(head(4.0, False), QuantizationConfig())[2] <= 16


def test_a_part_that_is_almost_nothing_takes_no_more_than_float32_holds() -> None:
    boxes, _, bits = parts(head(1e9, False), QuantizationConfig())
    assert bits <= 24 and boxes > 38
