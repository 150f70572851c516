"""Casts of integers keep them; as truth values they are 1 where they are not 0."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.errors import UnsupportedOperatorError
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.operators.integer import Cast

VALUES = np.arange(-4, 6, dtype=np.int32)[None]


def cast_twice(first: str, given: str = "int32") -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 10), given))
    between = builder.apply(Cast(dtype=first), [x], "between")
    return builder.graph([builder.apply(Cast(dtype="float32"), [between], "y")])


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
def test_integers_are_what_they_were(dtype: str) -> None:
    config = QuantizationConfig(inputs={"x": InputConfig(dtype="int32", range=(-4, 5))})
    graph = cast_twice(dtype)
    truth = {"x": Range(-4.0, 5.0), "between": Range(-4.0, 5.0), "y": Range(-4.0, 5.0)}
    integer = expand_graph(graph, truth, config)
    (found,) = integer.graph.evaluate({"x": VALUES})
    wanted = VALUES != 0 if dtype == "bool" else VALUES
    (output,) = integer.outputs
    np.testing.assert_array_equal(found * np.float64(output.step), wanted.astype(np.float64))


def test_floats_that_are_cut_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"between \(Cast\) cuts the floats x to int8"):
        expand_graph(cast_twice("int8", "float32"), {n: Range(-4.0, 5.0) for n in ("x", "between", "y")}, _DEFAULTS)


_DEFAULTS = QuantizationConfig()
