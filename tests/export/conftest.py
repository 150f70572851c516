"""What tests of every format take."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.model import QuantizedModel, assemble
from mrt.quantization.options import QuantizationConfig
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from tests.quantization.networks import chain, quantize_and_run


@pytest.fixture(scope="session")
def model() -> QuantizedModel:
    """A convolution, a rectifier and a dense layer for [1, 2, 5, 5]."""
    random = np.random.default_rng(0)
    graph = chain(
        (1, 2, 5, 5),
        (Convolution((3, 3), 4, no_bias=True), [random.standard_normal((4, 2, 3, 3))]),
        (Relu(), []),
        (FullyConnected(3, no_bias=True), [random.standard_normal((3, 36))]),
    )
    samples = [{"x": random.standard_normal((1, 2, 5, 5)).astype(np.float32)} for _ in range(4)]
    config = QuantizationConfig.model_validate({"activation": {"quantizer": "affine"}})
    return assemble(quantize_and_run(graph, samples, config).integer, None, {})
