"""The graph: symbols, operator records, text form, bounds. Depends on nothing else in MRT."""

from mrt.symbol import operators as _operators
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, find_operator, operator
from mrt.symbol.passes import Pass, PassResult, Property, Refusal, RewritePass, run_passes
from mrt.symbol.runner import Evaluate, NumpyRunner, Runner
from mrt.symbol.symbol import Symbol, Variable, apply, variable
from mrt.symbol.types import TensorType

del _operators

__all__ = [
    "Array",
    "Evaluate",
    "Graph",
    "GraphBuilder",
    "Interval",
    "NumpyRunner",
    "Operator",
    "Pass",
    "PassResult",
    "Property",
    "Refusal",
    "RewritePass",
    "Runner",
    "Symbol",
    "TensorType",
    "Variable",
    "apply",
    "find_operator",
    "operator",
    "run_passes",
    "variable",
]
