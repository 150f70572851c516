"""What records say of themselves, held against what their operators compute; of every record that says it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest

from mrt.symbol import Operator, TensorType
from mrt.symbol.operation import Operation
from mrt.symbol.operator import EVERYTHING, registered_operators
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.layer import Layer
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.scalar import WithNumber

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Reshape": {"shape": (6, 4)},
    "expand_dims": {"axis": 1},
    "clip": {"a_min": -0.5, "a_max": 0.75},
    "_power_scalar": {"scalar": 0.5},
    "_mod_scalar": {"scalar": 0.5},
}
X = np.linspace(-2, 2, 24).reshape(1, 4, 6) + 0.01
Y = np.cos(np.arange(24.0)).reshape(1, 4, 6) + 1.5


def made(record: type[Operator]) -> Operator:
    return record(**ATTRIBUTES.get(record.op, {"scalar": 0.5} if issubclass(record, WithNumber) else {}))


def of(says: Callable[[type[Operator]], object]) -> Iterable[type[Operator]]:
    return [record for record in registered_operators() if record.__module__.startswith("mrt.") and says(record)]


def takes_no_attributes(record: type[Operator]) -> bool:
    return record.op in ATTRIBUTES or all(f.default is not MISSING or f.name == "scalar" for f in fields(record))


@pytest.mark.parametrize("record", of(lambda record: record.keeps_order))
def test_order_is_kept(record: type[Operator]) -> None:
    assert np.array_equal(np.ravel(made(record).evaluate(X)), np.ravel(X))


@pytest.mark.parametrize("record", of(lambda record: record.operation))
def test_operations_are_numpys(record: type[Operator]) -> None:
    operator = made(record)
    assert operator.operation is not None
    compute = getattr(np, operator.operation.value)
    if isinstance(operator, WithNumber):
        operands = (operator.scalar, X) if operator.number_first else (X, operator.scalar)
        assert np.allclose(operator.evaluate(X), compute(*operands), rtol=1e-15, atol=0)
    else:
        assert np.allclose(operator.evaluate(X, Y), compute(X, Y), rtol=1e-15, atol=0)


def test_every_operation_is_that_of_tensors_and_of_numbers() -> None:
    for numbers in (True, False):
        assert {r.operation for r in of(lambda r: r.operation) if issubclass(r, WithNumber) is numbers} == set(
            Operation
        )


@pytest.mark.parametrize("record", of(lambda r: takes_no_attributes(r) and made(r).limits != EVERYTHING))
def test_limits_are_where_values_end(record: type[Operator]) -> None:
    operator = made(record)
    assert np.array_equal(operator.evaluate(X), np.clip(X, *operator.limits))


def test_four_operators_are_limits() -> None:
    found = {record.op for record in of(lambda r: takes_no_attributes(r) and made(r).limits != EVERYTHING)}
    assert found == {"relu", "clip", "_maximum_scalar", "_minimum_scalar"}


@pytest.mark.parametrize("kind", LeakyReLU.kinds)
def test_rectifiers_of_two_lines_are_exact_in_integers(kind: str) -> None:
    """They alone give 2 f(x) for 2 x, whichever x."""
    operator = LeakyReLU(act_type=kind)
    gamma = [np.full(4, 0.3)] if kind == "prelu" else []
    doubles = np.allclose(operator.evaluate(2 * X, *gamma), 2 * operator.evaluate(X, *gamma))
    assert operator.exact_in_integers == doubles


@pytest.mark.parametrize(
    "operator",
    [
        Convolution(kernel=(3,), num_filter=4, num_group=2),
        Deconvolution(kernel=(3,), num_filter=4, num_group=2),
        FullyConnected(num_hidden=4, flatten=False),
    ],
    ids=lambda operator: operator.op,
)
def test_rows_of_a_weight_make_the_output_channels(operator: Layer) -> None:
    """A layer of the rows of some channels gives these channels."""
    groups = getattr(operator, "num_group", 1)
    operator, data = operator.with_bias(False), np.arange(24).reshape(1, 4, 6) % 7 - 3
    if isinstance(operator, FullyConnected):
        data, shape = data.swapaxes(1, 2), (4, 4)
    else:
        shape = (4, 2, 3)
    weight = np.arange(np.prod(shape)).reshape(shape) % 5 - 2
    whole = operator.evaluate(data, weight)
    assert whole.shape == operator.infer(TensorType(data.shape), TensorType(shape)).shape
    rows = operator.rows(weight)
    assert np.array_equal(operator.from_rows(rows), weight)
    chosen = [0, 2] if groups == 2 else [1, 2]
    part = operator.part(2, groups)
    axis = operator.channel_axis()
    assert np.array_equal(part.evaluate(data, part.from_rows(rows[chosen])), whole.take(chosen, axis))
