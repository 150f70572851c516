"""Which expansion a record has: its own, or that of a base; and what it says of the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from mrt.calibration import Range
from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.quantization import expansion as registry
from mrt.quantization.demand import Demand
from mrt.quantization.expand import expand_graph
from mrt.quantization.expansion import Inputs, check_covered, expansion, expansion_of
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Operator, Symbol, TensorType
from mrt.symbol.operators.functions import FloatFunction, increasing
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.registry import ByRecord


@dataclass(frozen=True)
class Cube(FloatFunction):
    """x^3: a record that nothing but its base says anything of."""

    op = "cube"

    def evaluate(self, x: Array) -> Array:
        return np.asarray(x, np.float64) ** 3

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, lambda v: v**3)


def graph_of(operator: Operator, shape: tuple[int, ...] = (4, 8)) -> Graph:
    builder = GraphBuilder()
    return builder.graph([builder.apply(operator, [builder.input("x", TensorType(shape))], "y")])


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_EXPANSIONS", ByRecord("expansion"))
    yield


def test_a_function_of_one_tensor_becomes_a_table_by_its_base() -> None:
    ranges = {"x": Range(-1.0, 1.0), "y": Range(-1.0, 1.0)}
    made = expand_graph(graph_of(Cube(), (255,)), ranges, QuantizationConfig())
    assert any(isinstance(symbol.operator, TableLookup) for symbol in made.graph.operators)
    integers = np.arange(-127, 128)
    (found,) = made.graph.evaluate({"x": integers.astype(np.int8)})
    assert np.array_equal(found, [round(Fraction(32767 * q**3, 127**3)) for q in integers.tolist()])


def test_what_no_base_has_is_refused_by_name(empty: None) -> None:
    graph = graph_of(Softmax())
    with pytest.raises(UnsupportedOperatorError, match=r"y \(softmax\) has no integer form"):
        expansion_of(graph.by_name["y"])
    with pytest.raises(UnsupportedOperatorError, match=r"softmax \(1: y\)"):
        check_covered(graph)


def test_one_function_serves_several_records_once_each(empty: None) -> None:
    def expand(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
        return inputs.quantized(0)

    expansion(FloatFunction, Softmax, demands=Demand.WIDE)(expand)
    for operator in (Cube(), Softmax()):
        graph = graph_of(operator)
        found = expansion_of(graph.by_name["y"])
        assert found.expand is expand
        assert found.demands(graph.by_name["y"], graph) == (Demand.WIDE,)
    with pytest.raises(GraphError, match=r"Softmax \(softmax\).*expansion"):
        expansion(BatchDot, Softmax)(expand)
