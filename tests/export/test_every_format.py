"""What holds of every format's files: what cannot be written is one error, and the same model is the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from formats import Format, in_every_format

import mrt
from mrt.errors import UnsupportedOperatorError
from mrt.model import QuantizedModel, assemble
from mrt.symbol import GraphBuilder, Operator, TensorType, operator
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.transform import Reshape
from tests.quantization.networks import chain, quantize_and_run


@operator("half_of_test")
class Half(Operator):
    """x / 2 rounded down: an operator of a plug-in, without an exporter."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return x >> 1

    def bounds(self, x: Interval) -> Interval:
        return x.map(lambda v: v >> 1)


@in_every_format
def test_every_operator_that_cannot_be_written_is_listed(target: Format) -> None:
    builder = GraphBuilder()
    x, y = builder.input("x", TensorType((4,), "int8")), builder.input("y", TensorType((4,)))
    for index in range(4):
        x = builder.apply(Half(), [x], f"half{index}")
    graph = builder.graph([x, builder.apply(Sigmoid(), [y], "gate")])
    with pytest.raises(UnsupportedOperatorError) as caught:
        target.export(graph, ())
    message = str(caught.value)
    assert "half_of_test (4: half0, half1, half2, …)" in message
    assert "sigmoid of float32 (1: gate)" in message and "null of float32 (1: y)" in message


@in_every_format
def test_a_batch_that_is_baked_in_is_refused(target: Format, tmp_path: Path) -> None:
    graph = chain((2, 6), (Reshape((6, 2)), []))
    samples = [{"x": np.ones((2, 6), np.float32)}]
    model = assemble(quantize_and_run(graph, samples).integer, None, {})
    with pytest.raises(mrt.MRTError, match="s0 "):
        target.write(model, tmp_path, batch=4)
    assert not list(tmp_path.iterdir())


@in_every_format
def test_the_same_model_gives_the_same_bytes(target: Format, model: QuantizedModel, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first, second = (target.write(model, tmp_path / folder) for folder in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
