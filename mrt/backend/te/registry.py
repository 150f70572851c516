"""What the backend knows of each operator, found by the class of its record or the nearest of its bases.

A compute is a function `(symbol, *inputs) -> View`. One serves the float graph and the integer graph, whatever dtypes
and layouts they have. Each input is a `View`, or an `Operand` where it was packed for the compute. A compute may leave
hints for the scheduler as attributes of its stages (see `Hint`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from mrt.backend.machine import Machine
from mrt.backend.memory.layout_request import LayoutRequest
from mrt.backend.memory.storage import View
from mrt.backend.te.operands import Packed, Surroundings
from mrt.backend.tir.expressions import Tensor
from mrt.errors import CompilationError, GraphError
from mrt.symbol import Array, Graph, Interval, Operator, Symbol
from mrt.symbol.registry import ByRecord

_Record = TypeVar("_Record", bound=Operator)
_Read = TypeVar("_Read", bound=Operator, contravariant=True)
_Inputs = ParamSpec("_Inputs")
_Result = TypeVar("_Result")

_NONE: Mapping[int, Any] = MappingProxyType({})

Compute = Callable[..., Tensor]
RequestLayout = Callable[
    [Symbol[_Record], Sequence["Array | None"], Sequence[Interval], Machine], "LayoutRequest | None"
]
"""(symbol, the values of its inputs, None where computed, what is known of them, machine) -> the request; None where
any layout serves."""
Pack = Callable[[Symbol[_Record], Array, Surroundings], "Packed | None"]
"""(symbol, parameter, surroundings) -> the parameter packed; None where it stays as it would be without packing."""
Form = Callable[[Symbol[_Record], Surroundings], Any]
"""(symbol, surroundings) -> the form of an `Operand`."""


class Kind(Enum):
    """How an operator's elements depend on its inputs'. This decides what is fused, and which loops are formed."""

    ELEMENTWISE = "elementwise"
    """Each element depends on those at its own place; inputs may broadcast. The expression reads each input once."""
    RESHAPE = "reshape"
    """The same data in the same order, under another shape."""
    GATHER = "gather"
    """Each element is a copy of one of an input's, of the same rank; neighbouring channels mostly stay neighbours."""
    WINDOW = "window"
    """Each element depends on a window of positions, in all channels or its own; axis 1 counts channels."""
    ROWS = "rows"
    """Each element depends on rows along one axis, as in a matrix product."""
    REDUCTION = "reduction"
    """Each element combines those along some axes; of integers in any order."""
    NORMALIZATION = "normalization"
    """Each row of the result, along the last axis, is made of the same row of the first input in several steps."""
    STEPS = "steps"
    """As ELEMENTWISE, of one input, in a stage of its own."""
    OTHER = "other"
    """Elements depend on anything; the operator is a stage of its own."""


@dataclass(frozen=True)
class AsView(Generic[_Read]):
    """How the result of an operator that only moves elements is read in the memory of its data, not copied.

    view: (symbol, view of the data) -> the result, if the data's memory has the layout that `propagate` asks for.
    propagate: (symbol, request of a reader) -> the request to the data; a str says why no layout of it serves.
    keeps_order: whether neighbours stay neighbours, so that readers without a request lose nothing.
    """

    view: Callable[[Symbol[_Read], View], View]
    propagate: Callable[[Symbol[_Read], LayoutRequest], LayoutRequest | str]
    keeps_order: bool = False


@dataclass(frozen=True)
class ComputeEntry:
    """What `compute` registers of an operator. Mappings are by the number of an input."""

    function: Compute
    kind: Kind | Callable[..., Kind]
    """A value, or a function of the symbol."""
    random_access: Collection[int]
    """Inputs of an elementwise operator that are read at any place, such as a table."""
    unpadded: Collection[int]
    """Its computed inputs whose padding in memory must not be read, such as divisors: it may be 0."""
    repeats_input: bool
    """Whether its expression has the input in many places. TVM follows every path, so that few of these are fused."""
    on_scalars: Compute | None
    """The compute for a core without vectors, where `function` needs these; it gets views only."""
    layout_requests: Mapping[int, Callable[..., LayoutRequest | None]]
    """Which layouts the compute wants."""
    packings: Mapping[int, Callable[..., Packed | None]]
    """How parameters are laid out for the compute, while compiling."""
    forms: Mapping[int, Callable[..., Any]]
    """What the compute must know of a tensor, computed or a parameter that is not packed; it gets an `Operand`."""
    as_view: AsView[Any] | None
    """How the result is read in the memory of the data, if the operator only moves elements."""
    joined_axis: Callable[..., int] | None
    """Along which axis the result holds the inputs one behind the other, if it does."""
    updates: int | None = None
    """The input in whose memory the result is written, if any. Both lie plainly, and elements that are kept are not
    written again."""


_COMPUTES: ByRecord[ComputeEntry] = ByRecord("compute", "computes")


def compute(
    *records: type[_Record],
    kind: Kind | Callable[[Symbol[_Record]], Kind] = Kind.OTHER,
    random_access: Collection[int] = (),
    unpadded: Collection[int] = (),
    repeats_input: bool = False,
    on_scalars: Callable[Concatenate[Symbol[_Record], ...], Tensor] | None = None,
    layout_requests: Mapping[int, RequestLayout[_Record]] = _NONE,
    packings: Mapping[int, Pack[_Record]] = _NONE,
    forms: Mapping[int, Form[_Record]] = _NONE,
    as_view: AsView[_Record] | None = None,
    joined_axis: Callable[[Symbol[_Record]], int] | None = None,
    updates: int | None = None,
) -> Callable[
    [Callable[Concatenate[Symbol[_Record], _Inputs], _Result]], Callable[Concatenate[Symbol[_Record], _Inputs], _Result]
]:
    """Registers a function as the compute of operators, given by their records; records derived from them have it too.

    The other arguments are the fields of `ComputeEntry`. Raises GraphError where a record has a compute of its own.
    """
    facts = (kind, random_access, unpadded, repeats_input, on_scalars)
    layouts = (layout_requests, packings, forms, as_view, joined_axis)

    def register(
        function: Callable[Concatenate[Symbol[_Record], _Inputs], _Result],
    ) -> Callable[Concatenate[Symbol[_Record], _Inputs], _Result]:
        for record in records:
            _COMPUTES.add(record, ComputeEntry(function, *facts, *layouts, updates))
        return function

    return register


def _lacks_compute(symbol: Symbol, *inputs: Tensor) -> Tensor:
    raise CompilationError(f"{symbol.name} ({symbol.op}): there is no compute; register one with mrt.backend.compute")


_LACKING = ComputeEntry(_lacks_compute, Kind.OTHER, (), (), False, None, {}, {}, {}, None, None)


def compute_entry(symbol: Symbol) -> ComputeEntry:
    """What is registered of a symbol's operator."""
    return _COMPUTES.find(type(symbol.operator)) or _LACKING


def has_compute(record: type[Operator]) -> bool:
    return record in _COMPUTES


def find_compute(symbol: Symbol) -> Compute:
    return compute_entry(symbol).function


def find_scalar_compute(symbol: Symbol) -> Compute:
    """The compute of a symbol's operator for a core without vectors."""
    return compute_entry(symbol).on_scalars or find_compute(symbol)


def kind_of(symbol: Symbol) -> Kind:
    kind = compute_entry(symbol).kind
    return kind if isinstance(kind, Kind) else kind(symbol)


def repeats_input(symbol: Symbol) -> bool:
    """Whether the compute's expression has its input in many places."""
    return compute_entry(symbol).repeats_input


def random_access_inputs(symbol: Symbol) -> Collection[int]:
    """Which inputs of an elementwise operator are read at any place."""
    return compute_entry(symbol).random_access


def unpadded_inputs(symbol: Symbol) -> Collection[int]:
    """Which computed inputs of an elementwise operator may not be read beyond their shape."""
    return compute_entry(symbol).unpadded


def layout_request_of(
    symbol: Symbol, index: int, graph: Graph, bounds: Mapping[str, Interval], machine: Machine
) -> LayoutRequest | None:
    """The layout that the compute of `symbol` requests of its input `index`; None where any serves.

    bounds: of the graph's tensors, by name.
    """
    request = compute_entry(symbol).layout_requests.get(index)
    if request is None:
        return None
    values, known = [graph.value(each) for each in symbol.inputs], [bounds[each.name] for each in symbol.inputs]
    return request(symbol, values, known, machine)


def is_view(symbol: Symbol) -> bool:
    """Whether the result of an operator may be read in the memory of its data."""
    return compute_entry(symbol).as_view is not None


def view_of(symbol: Symbol, data: View) -> View:
    """The result of an operator that `is_view` in the memory of its data."""
    return _as_view(symbol).view(symbol, data)


def propagated_request(symbol: Symbol, request: LayoutRequest) -> LayoutRequest | str:
    """The request of a reader of `symbol`, which `is_view`, as one to its data; or why there is none."""
    return _as_view(symbol).propagate(symbol, request)


def keeps_order(symbol: Symbol) -> bool:
    """Whether readers of `symbol`, which `is_view`, read it in the memory of its data though they request nothing."""
    return _as_view(symbol).keeps_order


def _as_view(symbol: Symbol) -> AsView[Operator]:
    found = compute_entry(symbol).as_view
    if found is None:
        raise GraphError(f"{symbol.name} ({symbol.op}) is no view of its data")
    return found


def joined_axis(symbol: Symbol) -> int | None:
    """The axis along which the inputs of `symbol` follow each other, None if they do not."""
    axis = compute_entry(symbol).joined_axis
    return None if axis is None else axis(symbol)


def updated_input(symbol: Symbol) -> Symbol | None:
    """The input of `symbol` in whose memory its result is written, None where it has memory of its own."""
    place = compute_entry(symbol).updates
    return None if place is None else symbol.inputs[place]
