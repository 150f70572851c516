"""The integer forms of softmax, normalisations and products of activations compiled, against their meaning."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_at_the_ends

from mrt.backend import TvmRunner
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Operator
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.normalization import LayerNorm, LogSoftmax, Softmax
from tests.quantization.networks import chain, quantize_and_run, random_samples

RNG = np.random.default_rng(2)
NARROW, WIDE = (8, "symmetric"), (12, "affine")
"""Bits and quantizer of activations, by which an operator is quantized in one form or the other."""


@pytest.mark.parametrize(
    ("operator", "parameters", "bits", "quantizer"),
    [
        (Softmax(), [], *NARROW),
        (Softmax(axis=1, temperature=2.0), [], *WIDE),
        (LogSoftmax(), [], *WIDE),
        (LogSoftmax(axis=1, temperature=0.5), [], *NARROW),
        (LayerNorm(), [RNG.standard_normal(9), RNG.standard_normal(9)], *NARROW),
        (LayerNorm(axis=1, eps=1.0), [np.ones(6), np.zeros(6)], *WIDE),
        (InstanceNorm(), [RNG.standard_normal(6), RNG.standard_normal(6)], *NARROW),
        (InstanceNorm(), [RNG.standard_normal(6), RNG.standard_normal(6)], *WIDE),
        (L2Normalization(mode="channel"), [], *WIDE),
        (L2Normalization(mode="instance"), [], *NARROW),
        (BatchDot(), [RNG.standard_normal((2, 6, 9, 4))], *NARROW),
        (BatchDot(), [RNG.standard_normal((2, 6, 9, 4))], *WIDE),
    ],
    ids=lambda value: value.op if isinstance(value, Operator) else "",
)
def test_compiled_integers_are_the_evaluated_ones(
    operator: Operator, parameters: list[np.ndarray], bits: int, quantizer: str
) -> None:
    graph = chain((2, 6, 5, 9), (operator, parameters))
    config = QuantizationConfig.model_validate({"activation": {"bits": bits, "quantizer": quantizer}})
    integer = quantize_and_run(graph, random_samples(graph, 1), config).integer
    ((_, target),) = integer.inputs
    assert_same_at_the_ends(integer.graph, target.lo, target.hi, TvmRunner())
