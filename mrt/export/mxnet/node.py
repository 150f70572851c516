"""What an exporter to MXNet sees: one symbol of the integer graph, and means to compute it in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.errors import UnsupportedOperatorError
from mrt.export.lowering import Roots
from mrt.export.node import ArrangingNode, SymbolValues
from mrt.export.registry import Exporters
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.functions import Floor
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.scalar import MulScalar, PlusScalar
from mrt.symbol.operators.selection import MinimumScalar
from mrt.symbol.operators.transform import Reshape, Slice, Transpose

DTYPE = "float64"
"""In which integers of up to 53 bits are exact, and which MXNet has for every operator."""


class Scope(SymbolValues[Symbol]):
    """The float64 graph while it is made, and the value of every symbol of the integer graph made so far."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.builder = GraphBuilder(reserved=graph.by_name)
        for symbol in graph.inputs:
            self.define(symbol, self.builder.input(symbol.name, TensorType(shape_of(symbol), DTYPE)))

    def define_new(self, symbol: Symbol, value: Symbol) -> None:
        """Makes a new value the symbol's own, under its name."""
        self.define(symbol, replace(value, name=self.builder.unique(symbol.name)))

    def of_parameter(self, symbol: Symbol, array: Array) -> Symbol:
        """A parameter of the float64 graph."""
        return self.parameter(symbol.name, array.reshape(shape_of(symbol)))

    def parameter(self, name: str, array: Array) -> Symbol:
        return self.builder.parameter(name, array.astype(DTYPE))

    def array(self, symbol: Symbol) -> Array | None:
        return self._graph.value(symbol)


def shape_of(symbol: Symbol) -> tuple[int, ...]:
    """The shape of a symbol's value: MXNet 1.x has no tensors of rank 0, for which vectors of one stand."""
    return symbol.shape or (1,)


@dataclass(frozen=True)
class Node(ArrangingNode[Symbol], Roots[Symbol]):
    """One symbol. Exporters read its types and inputs and write operators through it; they see nothing else."""

    scope: Scope

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.symbol)

    def input_shape(self, index: int) -> tuple[int, ...]:
        return shape_of(self.symbol.inputs[index])

    # Inputs

    def input(self, index: int) -> Symbol:
        return self.scope.value(self.symbol.inputs[index])

    @property
    def inputs(self) -> list[Symbol]:
        return [self.input(index) for index in range(self.input_count)]

    def array(self, index: int) -> Array | None:
        """An input's integers where it is a parameter."""
        return self.scope.array(self.symbol.inputs[index])

    # Operators

    def apply(self, operator: Operator, inputs: Sequence[Symbol | Array]) -> Symbol:
        """An operator that MXNet has, on values and constants; UnsupportedOperatorError for one that a package derives
        from it, which MXNet knows no name of."""
        if type(operator) is type(self.symbol.operator) and not _EXPORTERS.names(operator):
            raise UnsupportedOperatorError(
                f"{self.symbol.name} ({operator.op}): MXNet has no such operator; register an exporter for "
                f"{type(operator).__name__}"
            )
        values = [x if isinstance(x, Symbol) else self.constant(x) for x in inputs]
        return self.scope.builder.apply(operator, values, f"{self.symbol.name}_{operator.op.lower().strip('_')}")

    def constant(self, array: Array) -> Symbol:
        return self.scope.parameter(f"{self.symbol.name}_constant", np.atleast_1d(array))

    def indicator(self, value: Symbol, lo: int, hi: int) -> Symbol:
        """1 where an integer in [lo, hi] is more than 0, else 0."""
        value = self.apply(Relu(), [value]) if lo < 0 else value
        return self.apply(MinimumScalar(1.0), [value]) if hi > 1 else value

    def mixed(self, condition: Symbol, chosen: Symbol, otherwise: Symbol) -> Symbol:
        """`chosen` where the condition is 1, `otherwise` where it is 0: MXNet's where does not broadcast."""
        difference = self.apply(BroadcastSub(), [chosen, otherwise])
        return self.apply(BroadcastAdd(), [otherwise, self.apply(BroadcastMul(), [condition, difference])])

    # Arrangement

    def reshaped(self, value: Symbol, shape: Sequence[int]) -> Symbol:
        return value if value.shape == tuple(shape) else self.apply(Reshape(tuple(shape)), [value])

    def transposed(self, value: Symbol, axes: Sequence[int]) -> Symbol:
        return self.apply(Transpose(tuple(axes)), [value])

    def sliced(self, value: Symbol, slices: Sequence[slice], shape: Sequence[int]) -> Symbol:
        cuts = [cut.indices(length) for cut, length in zip(slices, shape, strict=True)]
        if cuts == [(0, length, 1) for length in shape]:
            return value
        # Where a backward slice goes on to element 0 Python says -1, which MXNet says as None.
        begin, end, step = zip(*((b, e if e >= 0 else None, s) for b, e, s in cuts), strict=True)
        return self.apply(Slice(begin, end, step), [value])

    def padded(self, value: Symbol, before: Sequence[int], after: Sequence[int], fill: int) -> Symbol:
        return self.bordered(value, before, after, "constant", fill)

    def bordered(self, value: Symbol, before: Sequence[int], after: Sequence[int], mode: str, fill: int = 0) -> Symbol:
        """A border in a mode of Pad, which in MXNet has rank 4 or 5 and leaves the first two axes alone.

        Case 1: as it is. Case 2: one axis after the other, each the third of an image.
        """
        if len(value.shape) in (4, 5) and any((*before, *after)) and not any((*before[:2], *after[:2])):
            around = tuple(width for pair in zip(before, after, strict=True) for width in pair)
            return self.apply(Pad(around, mode, float(fill)), [value])
        for axis, widths in enumerate(zip(before, after, strict=True)):
            if any(widths):
                shape = value.shape
                image = (1, int(np.prod(shape[:axis])), shape[axis], int(np.prod(shape[axis + 1 :])))
                pad = Pad((0, 0, 0, 0, *widths, 0, 0), mode, float(fill))
                value = self.apply(pad, [self.reshaped(value, image)])
                value = self.reshaped(value, (*shape[:axis], shape[axis] + sum(widths), *shape[axis + 1 :]))
        return value

    # Roots

    def plus(self, value: Symbol, other: Symbol | int) -> Symbol:
        if isinstance(other, Symbol):
            return self.apply(BroadcastAdd(), [value, other])
        return self.apply(PlusScalar(float(other)), [value])

    def minus(self, value: Symbol, other: Symbol) -> Symbol:
        return self.apply(BroadcastSub(), [value, other])

    def times(self, value: Symbol, factor: Symbol | int) -> Symbol:
        if isinstance(factor, Symbol):
            return self.apply(BroadcastMul(), [value, factor])
        return self.apply(MulScalar(float(factor)), [value])

    def quotient(self, value: Symbol, divisor: Symbol) -> Symbol:
        """The floor of a float64 quotient of integers of 32 bits is exact.

        Where value / divisor is no integer it lies 1 / divisor >= 2^-31 below the next one or more, and its rounding
        is off by less than 2^-53 of 2^31 / divisor.
        """
        return self.apply(Floor(), [self.apply(BroadcastDiv(), [value, divisor])])

    def chosen(self, large: Symbol, small: Symbol, chosen: Symbol, otherwise: Symbol) -> Symbol:
        one_more = self.plus(self.minus(large, small), 1)
        return self.mixed(self.indicator(one_more, -1, 2), chosen, otherwise)


_EXPORTERS: Exporters[Node, Symbol] = Exporters("MXNet's operators", "exporters.mxnet")
"""By record. The values are in float64."""
exporter = _EXPORTERS.register
"""Registers a function as the exporter of the operators of records."""
find_exporter = _EXPORTERS.find
check_covered = _EXPORTERS.check_covered
