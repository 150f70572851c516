"""Which exporter a record has: its own, or that of a base where the format does not write its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import exported
import mxnet_exported
import numpy as np
import pytest
import relay_exported

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.export.registry import Exporters
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.elementwise import ElemwiseAdd


@dataclass(frozen=True)
class OwnClip(Clip):
    op = "own_clip"


@dataclass(frozen=True)
class OwnSum(ElemwiseAdd):
    op = "own_sum"


def graph_of(operator: Operator, count: int = 1) -> Graph:
    builder = GraphBuilder()
    inputs = [builder.input(f"x{index}", TensorType((5,), "int32")) for index in range(count)]
    return builder.graph([builder.apply(operator, inputs, "y")])


X = np.array([-9, -2, 0, 3, 9], np.int32)


@pytest.mark.parametrize("format", [exported, relay_exported, mxnet_exported])
def test_a_derived_record_is_written_as_its_base(format: Any) -> None:
    graph = graph_of(OwnClip(-2.0, 3.0))
    facts = exported.facts(graph, {"x0": (-9, 9)})
    ((found,),) = format.run(format.exported(graph, facts), [{"x0": X}])
    assert found.tolist() == [-2, -2, 0, 3, 3]


def test_mxnet_is_told_no_name_that_it_does_not_know() -> None:
    graph = graph_of(OwnSum(), 2)
    facts = exported.facts(graph, {"x0": (-9, 9), "x1": (-9, 9)})
    ((found,),) = exported.run(exported.exported(graph, facts), [{"x0": X, "x1": X}])
    assert found.tolist() == (2 * X).tolist()
    with pytest.raises(UnsupportedOperatorError, match=r"y \(own_sum\): MXNet has no such operator; .* OwnSum"):
        mxnet_exported.exported(graph, facts)


def test_a_record_has_one_exporter_and_may_have_none() -> None:
    exporters: Exporters[str, str] = Exporters("letters")
    exporters.register(Clip, Relu)(lambda op, node: node)
    assert exporters.find(OwnClip(0.0, 1.0))(OwnClip(0.0, 1.0), "a") == "a"
    with pytest.raises(GraphError, match=r"Relu \(relu\).*exporter to letters"):
        exporters.register(Relu)(lambda op, node: node)
    with pytest.raises(UnsupportedOperatorError, match="own_sum has no form in letters"):
        exporters.find(OwnSum())
