"""Chains of integer graphs: which operators are their steps, and which operators give them again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mrt.errors import QuantizationError
from mrt.simplification.chain import (
    Add,
    Chain,
    Clip,
    Link,
    Multiply,
    Relu,
    Round,
    Step,
    Store,
    Sum,
    are_integers,
    fractions,
    shared,
)
from mrt.symbol import Array, Graph, GraphBuilder, Interval, Operator, Symbol, TensorType
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operation import Operation
from mrt.symbol.operators import activation, selection
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import Cast, RightShift
from mrt.symbol.operators.scalar import MinusScalar, MulScalar, PlusScalar
from mrt.symbol.types import INT32_MAX, INT32_MIN, narrowest_dtype, type_of

MAX_SHIFT = 31
POWERS = tuple(Fraction(1, 2**s) for s in range(MAX_SHIFT + 1))
MOST_COEFFICIENTS = 1 << 13
"""Constants of more elements are no coefficients: those by channel have fewer, others would take long as fractions."""


@dataclass(frozen=True, eq=False)
class _Part:
    """An operator that takes the chain's elements, and beside them a constant or another tensor times a constant."""

    operator: Operator
    constant: Array | None = None
    other: Symbol | None = None


@dataclass(frozen=True, eq=False)
class Planned:
    """The operators that give the links start to stop - 1 of a chain."""

    start: int
    stop: int
    parts: tuple[_Part, ...]

    @property
    def cost(self) -> int:
        """How many operators these are."""
        return len(self.parts) + sum(part.other is not None and part.constant is not None for part in self.parts)

    def proven(self, type: TensorType, held: Interval, bounds: Mapping[str, Interval]) -> tuple[TensorType, Interval]:
        """Type and interval of the result; QuantizationError or GraphError where it is not proven to fit 32 bits."""
        for part in self.parts:
            type, held = _applied(part, type, held, bounds)
        return type, held

    def build(
        self, value: Symbol, others: Mapping[Symbol, Symbol], builder: GraphBuilder, name: str, origin: str
    ) -> Symbol:
        """The operators on `value`, the last one under `name`. others: what tensors beside have become."""
        for part in self.parts:
            constant = None if part.constant is None else builder.parameter(f"{name}_by", part.constant, origin)
            inputs = [value]
            if part.other is not None:
                inputs.append(others[part.other])
                if constant is not None:
                    inputs[1] = builder.apply(BroadcastMul(), [inputs[1], constant], f"{name}_other", origin)
            elif constant is not None:
                inputs.append(constant)
            last = part is self.parts[-1]
            value = builder.apply(part.operator, inputs, name if last else f"{name}_lower", origin)
        return value


def _applied(
    part: _Part, type: TensorType, held: Interval, bounds: Mapping[str, Interval]
) -> tuple[TensorType, Interval]:
    if part.other is None:
        beside = [] if part.constant is None else [(type_of(part.constant), Interval.constant(part.constant))]
    else:
        beside = [(part.other.type, bounds[part.other.name])]
        if part.constant is not None:
            beside = [_checked(BroadcastMul(), [*beside, (type_of(part.constant), Interval.constant(part.constant))])]
    return _checked(part.operator, [(type, held), *beside])


def _checked(operator: Operator, inputs: Sequence[tuple[TensorType, Interval]]) -> tuple[TensorType, Interval]:
    type = operator.infer(*(type for type, _ in inputs))
    intervals = [interval for _, interval in inputs]
    result = operator.bounds(*intervals)
    for interval in (result, *operator.intermediates(*intervals)):
        if not interval.fits_int32:
            raise QuantizationError(f"{operator.op} would need {interval.bits} bits, 32 are allowed")
    lo, hi = DTYPE_RANGES[type.dtype]
    if result.min < lo or result.max > hi:
        raise QuantizationError(f"{operator.op} would give {result}, which {type.dtype} does not hold")
    return type, result


# From the graph


class ChainReader:
    """Finds the chains of one integer graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[Symbol, tuple[Symbol, tuple[Step, ...]] | None] = {}

    def steps(self, symbol: Symbol) -> tuple[Symbol, tuple[Step, ...]] | None:
        """What a symbol does to the elements of one of its inputs, and this input; None if it is no step of a chain."""
        if symbol not in self._found:
            self._found[symbol] = self._read(symbol)
        return self._found[symbol]

    def ends_chain(self, symbol: Symbol) -> bool:
        """Whether no chain continues behind an operator's result."""
        return self._continued(symbol) is None and self.absorbed(symbol) is None

    def chain_to(self, symbol: Symbol) -> Chain:
        """The longest chain that ends in `symbol`: steps whose inner results nothing else reads."""
        links: list[Link] = []
        at, found = symbol, self.steps(symbol)
        while found is not None:
            at, steps = found[0], found[1]
            links = [*(Link(step, None) for step in steps[:-1]), Link(steps[-1], symbol), *links]
            symbol = at
            found = None if self._continued(at) is None else self.steps(at)
        return Chain(at, tuple(links))

    def absorbed(self, symbol: Symbol) -> tuple[Symbol, Array] | None:
        """The factors of a product that is read only as the second operand of a sum: the tensor and the constant."""
        readers = self._graph.consumers[symbol]
        if len(readers) != 1 or symbol in self._graph.outputs or symbol.is_variable:
            return None
        # Only a product's steps are asked for: those of a sum would ask this of its operand in turn.
        if symbol.operator.operation is not Operation.MULTIPLY:
            return None
        if not _is_sum(readers[0]) or readers[0].inputs[1] is not symbol:
            return None
        found = self.steps(symbol)
        if found is None or not isinstance(product := found[1][-1], Multiply):
            return None
        return found[0], product.factor

    def _continued(self, symbol: Symbol) -> Symbol | None:
        """The only reader of a symbol, if it goes on with the chain that the symbol is in."""
        readers = self._graph.consumers[symbol]
        if len(readers) != 1 or symbol in self._graph.outputs:
            return None
        found = self.steps(readers[0])
        goes_on = found is not None and found[0] is symbol and self.absorbed(readers[0]) is None
        return readers[0] if goes_on else None

    def _read(self, symbol: Symbol) -> tuple[Symbol, tuple[Step, ...]] | None:
        dtypes = [s.dtype for s in (symbol, *symbol.inputs)]
        if symbol.is_variable or any(dtype == "bool" or dtype not in DTYPE_RANGES for dtype in dtypes):
            return None
        values = [self._graph.value(source) for source in symbol.inputs]
        if len(values) == 1 and values[0] is None:
            step = _of_one(symbol)
            return None if step is None else (symbol.inputs[0], (step,))
        if len(values) == 2 and values[0] is None and values[1] is None and _is_sum(symbol):
            data, other = symbol.inputs
            scaled, factor = self.absorbed(other) or (other, fractions(1, symbol.type.rank))
            return data, (Sum(scaled, factor),)
        if len(values) == 2 and (values[0] is None) != (values[1] is None):
            index = 0 if values[0] is None else 1
            return _of_two(symbol, index, values[1 - index])
        return None


def _is_sum(symbol: Symbol) -> bool:
    """Whether a symbol adds two different tensors of one shape."""
    shapes = {s.shape for s in (symbol, *symbol.inputs)}
    return symbol.operator.operation is Operation.ADD and len(shapes) == 1 and len(set(symbol.inputs)) == 2


def _of_one(symbol: Symbol) -> Step | None:
    """What is done to the only input: relu, clip, Cast, and sums and products with a number."""
    operator, rank = symbol.operator, symbol.type.rank
    match operator:
        case activation.Relu():
            return Relu()
        case activation.Clip():
            lo, hi = math.ceil(max(operator.a_min, INT32_MIN)), math.floor(min(operator.a_max, INT32_MAX))
            return Clip(fractions(lo, rank), fractions(hi, rank))
        case Cast():
            return Store(operator.dtype)
        case PlusScalar():
            return Add(fractions(int(operator.scalar), rank))
        case MinusScalar():
            return Add(fractions(-int(operator.scalar), rank))
        case MulScalar():
            return Multiply(fractions(int(operator.scalar), rank))
    return None


def _of_two(symbol: Symbol, index: int, value: Array | None) -> tuple[Symbol, tuple[Step, ...]] | None:
    """The step that an operator of two inputs is for input `index`, if the other one is a constant."""
    data, is_first = symbol.inputs[index], index == 0
    if value is None or data.shape != symbol.shape or not 0 < value.size <= MOST_COEFFICIENTS:
        return None
    if isinstance(symbol.operator, RightShift):
        if not is_first or value.min() < 0 or value.max() > MAX_SHIFT:
            return None
        return data, (Multiply(_powers(value, symbol.type.rank)), Round())
    constant = fractions(value, symbol.type.rank)
    match symbol.operator.operation:
        case Operation.MULTIPLY:
            return data, (Multiply(constant),)
        case Operation.ADD:
            return data, (Add(constant),)
        case Operation.SUBTRACT if is_first:
            return data, (Add(np.asarray(-constant, object)),)
        case Operation.MAXIMUM:
            return data, (Clip(constant, None),)
        case Operation.MINIMUM:
            return data, (Clip(None, constant),)
    return None


def _powers(shift: Array, rank: int) -> Array:
    """2^-s as fractions."""
    exact = np.array([POWERS[int(s)] for s in shift.flat], object)
    return exact.reshape((1,) * (rank - shift.ndim) + shift.shape)


# To the graph


def plan(chain: Chain) -> tuple[Planned, ...] | str:
    """Operators that give the chain, or why there are none."""
    planned: list[Planned] = []
    at, links = 0, chain.links
    while at < len(links):
        step, stop = links[at].step, at + 1
        made: list[_Part] | str
        if isinstance(step, Multiply) and stop < len(links) and isinstance(links[stop].step, Round):
            made, stop = _shift(step.factor), stop + 1
        else:
            made = _operators(step)
        if isinstance(made, str):
            return made
        planned.append(Planned(at, stop, tuple(made)))
        at = stop
    return tuple(planned)


def _shift(factor: Array) -> list[_Part] | str:
    """The right shift that multiplies by powers of two and rounds."""
    shifts = [value.denominator.bit_length() - 1 for value in factor.flat]
    if any(value != Fraction(1, 2**s) for value, s in zip(factor.flat, shifts, strict=True)) or max(shifts) > MAX_SHIFT:
        return "a rounded factor is no power of two from 1 to 2^-31"
    return [_Part(RightShift(), np.array(shifts, np.int8).reshape(factor.shape))]


def _operators(step: Step) -> list[_Part] | str:
    match step:
        case Multiply(factor=factor):
            return _with_constant(BroadcastMul(), factor)
        case Add(term=term):
            return _with_constant(BroadcastAdd(), term)
        case Relu():
            return [_Part(activation.Relu())]
        case Store(dtype=dtype):
            return [_Part(Cast(dtype=dtype))]
        case Clip():
            return _limits(step)
        case Sum(other=other, factor=factor):
            return [_Part(ElemwiseAdd(), None if shared(factor) == 1 else _stored(factor), other)]
    return f"{type(step).__name__} is no operator of its own"


def _limits(step: Clip) -> list[_Part] | str:
    if not all(are_integers(limit) for limit in step.limits):
        return "a limit is no integer"
    if step.is_per_tensor:
        lo, hi = (None if limit is None else shared(limit) for limit in (step.lo, step.hi))
        lo, hi = max(INT32_MIN, INT32_MIN if lo is None else lo), min(INT32_MAX, INT32_MAX if hi is None else hi)
        return [_Part(activation.Clip(a_min=float(lo), a_max=float(hi)))]
    made: list[_Part] = []
    for operator, limit in ((selection.BroadcastMaximum(), step.lo), (selection.BroadcastMinimum(), step.hi)):
        if limit is not None:
            found = _stored(limit)
            if found is None:
                return "a limit needs more than 32 bits"
            made.append(_Part(operator, found.astype(np.int32)))
    return made


def _with_constant(operator: Operator, values: Array) -> list[_Part] | str:
    if not are_integers(values):
        return "a coefficient is no integer"
    stored = _stored(values)
    return "a constant needs more than 32 bits" if stored is None else [_Part(operator, stored)]


def _stored(values: Array) -> Array | None:
    """Integers in the narrowest dtype, None where that is not one of integer graphs."""
    lo, hi = int(values.min()), int(values.max())
    if lo < INT32_MIN or hi > INT32_MAX:
        return None
    return np.array([int(v) for v in values.flat], narrowest_dtype(lo, hi)).reshape(values.shape)
