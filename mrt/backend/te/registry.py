"""The registry of computes: what an operator becomes in TVM's tensor expressions, one function per operator.

A compute is a function `(symbol, *inputs) -> View` generic in the dtype: the same one serves the float graph and the
integer graph, and any layout. Its inputs are views of tensors, or operands where a parameter was packed for it (see
`packing`). It may leave hints for the scheduler as attributes of its stages (see `Hint`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from mrt.backend.machine import Machine
from mrt.backend.memory.storage import View
from mrt.backend.te.expressions import Tensor
from mrt.errors import CompilationError, GraphError
from mrt.plugins import load_plugins
from mrt.symbol import Array, Operator, Symbol

Compute = Callable[..., Tensor]
Wishing = Callable[[Symbol, Sequence["Array | None"], Machine], "Wish | None"]
Passing = Callable[[Symbol, "Wish"], "Wish | str"]
Viewing = Callable[[Symbol, View], View]
_Compute = TypeVar("_Compute", bound=Compute)
_Wishing = TypeVar("_Wishing", bound=Wishing)
_Viewing = TypeVar("_Viewing", bound=Viewing)
_Joining = TypeVar("_Joining", bound=Callable[[Symbol], int])
_Record = TypeVar("_Record", bound=Operator)
_Key = TypeVar("_Key")


class Kind(Enum):
    """How an operator's elements depend on its inputs', which decides what may be fused and how loops are formed."""

    ELEMENTWISE = "elementwise"
    """Each element needs the elements at its own place only (inputs may broadcast); each input is read once."""
    RESHAPE = "reshape"
    """The data in the same order under another shape."""
    GATHER = "gather"
    """Each element is one of an input's, of the same rank, and channels stay channels."""
    WINDOW = "window"
    """Each element depends on all or one of the channels at places nearby; axis 1 counts channels."""
    ROWS = "rows"
    """Each element depends on what stands along one axis, as in a matrix product."""
    REDUCTION = "reduction"
    """Each element combines those that stand along some axes, in any order if they are integers."""
    NORMALIZATION = "normalization"
    """Each row of the result, along the last axis, is made of the same row of the first input in several steps."""
    STEPS = "steps"
    """As ELEMENTWISE, of one input, in a stage of its own."""
    OTHER = "other"
    """Each element depends on anything; it is a stage of its own."""


@dataclass(frozen=True)
class _Registered:
    """A compute with what `compute` was told of it."""

    function: Compute
    kind: Kind | Callable[[Symbol], Kind]
    whole: frozenset[int]
    unpadded: frozenset[int]
    repeats: bool


@dataclass(frozen=True)
class _Seen:
    """What `viewing` was told of an operator."""

    view: Viewing
    passed: Passing
    in_order: bool


_COMPUTES: dict[str, _Registered] = {}
_ON_SCALARS: dict[str, Compute] = {}
_WISHES: dict[tuple[str, int], Wishing] = {}
_VIEWS: dict[str, _Seen] = {}
_JOINS: dict[str, Callable[[Symbol], int]] = {}


@dataclass(frozen=True)
class Wish:
    """How the compute of an operator wishes its data to lie in memory.

    inner: the innermost axis, None if any serves. dtype, offset: as in `Storage`, an empty string if any serves.
    before, after, border: what must stand around it along each axis, nothing if empty.
    """

    inner: int | None
    dtype: str = ""
    offset: int = 0
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    border: float = 0

    @property
    def has_border(self) -> bool:
        return any(self.before) or any(self.after)


def add_once(table: MutableMapping[_Key, Any], key: _Key, value: Any, what: str) -> None:
    """Adds an entry to a registry; GraphError where it has one: there are two `what`."""
    if key in table:
        raise GraphError(f"there are two {what}; one is needed")
    table[key] = value


def compute(
    *ops: str,
    kind: Kind | Callable[[Symbol], Kind] = Kind.OTHER,
    whole: Iterable[int] = (),
    unpadded: Iterable[int] = (),
    repeats: bool = False,
) -> Callable[[_Compute], _Compute]:
    """Registers a function as the compute of the operators `ops`.

    kind: may depend on the symbol. whole: which inputs of an elementwise operator are no operands, but read anywhere,
    such as a table. unpadded: which operands of one, where computed, may not be read beyond their shape, as others may
    where memory is padded. repeats: whether its expression has the input in many places; TVM takes time for every path
    through such expressions.
    """

    def register(function: _Compute) -> _Compute:
        for op in ops:
            add_once(
                _COMPUTES,
                op,
                _Registered(function, kind, frozenset(whole), frozenset(unpadded), repeats),
                f"computes of {op}",
            )
        return function

    return register


def wishing(op: str, index: int = 0) -> Callable[[_Wishing], _Wishing]:
    """Registers what the compute of `op` wishes of its input `index`.

    The function takes (symbol, values of the inputs that are parameters, machine); None is no wish.
    """

    def register(function: _Wishing) -> _Wishing:
        add_once(_WISHES, (op, index), function, f"wishes of input {index} of {op}")
        return function

    return register


def wish_of(symbol: Symbol, index: int, values: Sequence[Array | None], machine: Machine) -> Wish | None:
    """What the compute of `symbol` wishes of its input `index`."""
    wishes = _WISHES.get((symbol.op, index))
    return None if wishes is None else wishes(symbol, values, machine)


def viewing(*ops: str, passed: Passing, in_order: bool = False) -> Callable[[_Viewing], _Viewing]:
    """Registers how the result of `ops` is seen in the memory of its data, where that serves all who wish of it.

    The function takes (symbol, view of the data). passed: of a reader's wish, what is then to be wished of the data;
    where the data cannot lie so that it is met, why. in_order: whether neighbours stay neighbours, so that readers
    without a wish read there as well as anywhere.
    """

    def register(function: _Viewing) -> _Viewing:
        for op in ops:
            add_once(_VIEWS, op, _Seen(function, passed, in_order), f"views of {op}")
        return function

    return register


def joining(op: str) -> Callable[[_Joining], _Joining]:
    """Registers along which axis the inputs of `op` follow each other in its result: a function of the symbol."""

    def register(function: _Joining) -> _Joining:
        add_once(_JOINS, op, function, f"ways to join the inputs of {op}")
        return function

    return register


def joined_axis(symbol: Symbol) -> int | None:
    """The axis along which the inputs of `symbol` follow each other, None if they do not."""
    return _JOINS[symbol.op](symbol) if symbol.op in _JOINS else None


def view_of(symbol: Symbol, data: View) -> View:
    """The result of an operator that `is_view` in the memory of its data."""
    return _VIEWS[symbol.op].view(symbol, data)


def is_view(symbol: Symbol) -> bool:
    """Whether the result of an operator may be seen in the memory of its data."""
    return symbol.op in _VIEWS


def passed_wish(symbol: Symbol, wish: Wish) -> Wish | str:
    """The wish of a reader of `symbol`, which `is_view`, as one of its data; why not, where it cannot be passed on."""
    return _VIEWS[symbol.op].passed(symbol, wish)


def keeps_order(symbol: Symbol) -> bool:
    """Whether readers of `symbol`, which `is_view`, read it in the memory of its data though they wish for nothing."""
    return _VIEWS[symbol.op].in_order


def has_compute(op: str) -> bool:
    load_plugins("computes")
    return op in _COMPUTES


def find_compute(symbol: Symbol) -> Compute:
    """The compute of a symbol's operator, which must have one: see `has_compute`."""
    return _COMPUTES[symbol.op].function


def on_scalars(op: str) -> Callable[[_Compute], _Compute]:
    """Registers how a core without vectors computes `op`, whose compute is made for vectors; no input is packed."""

    def register(function: _Compute) -> _Compute:
        add_once(_ON_SCALARS, op, function, f"computes of {op} without vectors")
        return function

    return register


def find_scalar_compute(symbol: Symbol) -> Compute:
    """The compute of a symbol's operator for a core without vectors."""
    return _ON_SCALARS.get(symbol.op) or find_compute(symbol)


def kind_of(symbol: Symbol) -> Kind:
    load_plugins("computes")
    if symbol.op not in _COMPUTES:
        return Kind.OTHER
    kind = _COMPUTES[symbol.op].kind
    return kind if isinstance(kind, Kind) else kind(symbol)


def repeats_input(symbol: Symbol) -> bool:
    """Whether the compute's expression has its input in many places."""
    return symbol.op in _COMPUTES and _COMPUTES[symbol.op].repeats


def reads_whole(symbol: Symbol, index: int | None = None) -> bool:
    """Whether an elementwise operator reads its input `index`, or any of its inputs, otherwise than as an operand."""
    whole = _COMPUTES[symbol.op].whole if symbol.op in _COMPUTES else frozenset()
    return bool(whole) if index is None else index in whole


def unpadded_inputs(symbol: Symbol) -> frozenset[int]:
    """Which inputs of an elementwise operator may not be read beyond their shape where they are computed."""
    return _COMPUTES[symbol.op].unpadded if symbol.op in _COMPUTES else frozenset()


def record(symbol: Symbol, kind: type[_Record]) -> _Record:
    """The symbol's operator, as the record that its compute is for."""
    if not isinstance(symbol.operator, kind):
        raise CompilationError(f"{symbol.name}: a compute for {kind.op} is registered for {symbol.op}")
    return symbol.operator
