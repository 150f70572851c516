"""What fuzzing found, each as the smallest graph or file that shows it."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.certificate.certificate import derive
from mrt.errors import QuantizationError
from mrt.symbol import GraphBuilder, Interval, TensorType, find_operator
from mrt.symbol.interval import add, exact_array, multiply, subtract, total

LOWEST, HIGHEST = -(2**31), 2**31 - 1


def test_bounds_of_a_tensor_without_axes_are_arrays_beyond_64_bits_too() -> None:
    """NumPy makes plain Python integers of arithmetic on those in arrays without axes."""
    large, one = np.array(2**62), np.array(1)
    for found, expected in (
        (add(large, large), 2**63),
        (subtract(large, -large), 2**63),
        (multiply(large, large), 2**124),
        (add(np.array(2**70, object), one), 2**70 + 1),
        (total(np.array([2**62] * 5), 0), 5 * 2**62),
    ):
        assert isinstance(found, np.ndarray)
        assert found.shape == ()
        assert int(found) == expected
        assert int(exact_array(found.item())) == expected


@pytest.mark.parametrize("op", ["elemwise_mul", "square"])
def test_a_product_without_axes_is_refused_by_its_bits(op: str) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((), "int32"))
    inputs = [x] if op == "square" else [x, x]
    graph = builder.graph([builder.apply(find_operator(op)(), inputs, "y")])
    with pytest.raises(QuantizationError, match="y .* needs 64 bits, 32 are allowed"):
        derive(graph, {"x": Interval.of(LOWEST, HIGHEST, ())})
