"""The registry of computes: what an operator becomes in TVM's tensor expressions, one function per operator.

A compute is a function `(symbol, *tensors) -> tensor` of TE tensors, generic in the dtype: the same one serves the
float graph and the integer graph. It may leave hints for the scheduler as attributes of its stages (see `Hint`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from tvm import te, tirx

from mrt.errors import CompilationError
from mrt.symbol import Array, Operator, Symbol

Tensor = Any
"""A `te.Tensor`; TVM has no types that mypy could check."""
Expression = Any
"""A `tirx.PrimExpr`."""
Compute = Callable[..., Tensor]
Packing = Callable[[Symbol, Array], "Array | None"]
_Compute = TypeVar("_Compute", bound=Compute)
_Packing = TypeVar("_Packing", bound=Packing)
_Record = TypeVar("_Record", bound=Operator)


class Kind(Enum):
    """How an operator's elements depend on its inputs', which decides what may be fused and how loops are formed."""

    ELEMENTWISE = "elementwise"
    """Each element needs the elements at its own place only (inputs may broadcast); each input is read once."""
    RESHAPE = "reshape"
    """The data in the same order under another shape."""
    OTHER = "other"


class Hint:
    """Attributes of TE stages that the scheduler reads."""

    INLINE = "mrt.inline"
    """The stage is computed where it is read."""
    BLOCK_AXIS = "mrt.block_axis"
    """Marks a blocked accumulation: the axis that counts blocks of output channels; the last axis is the lane."""
    GROUP_BLOCKS = "mrt.group_blocks"
    """Of a blocked accumulation: how many blocks in a row read the same input."""
    CHANNEL_AXIS = "mrt.channel_axis"
    """Of a blocked accumulation: the output's axis that its blocks and lanes become."""
    WHOLE_BLOCKS = "mrt.whole_blocks"
    """Of a blocked accumulation: whether no lane is idle."""
    FLAT = "mrt.flat"
    """Of a blocked accumulation: whether its positions are the output's axes after the channels as one."""


_COMPUTES: dict[str, tuple[Compute, Kind]] = {}
_PACKINGS: dict[tuple[str, int], Packing] = {}


def compute(*ops: str, kind: Kind = Kind.OTHER) -> Callable[[_Compute], _Compute]:
    """Registers a function as the compute of the operators `ops`."""

    def register(function: _Compute) -> _Compute:
        for op in ops:
            if op in _COMPUTES:
                raise ValueError(f"operator {op} has two computes")
            _COMPUTES[op] = (function, kind)
        return function

    return register


def packing(op: str, index: int) -> Callable[[_Packing], _Packing]:
    """Registers how a parameter that is input `index` of `op` is laid out for its compute, while compiling.

    The function takes (symbol, array) and gives the array that the compute gets instead, or None to leave it alone.
    """

    def register(function: _Packing) -> _Packing:
        _PACKINGS[op, index] = function
        return function

    return register


def has_compute(op: str) -> bool:
    return op in _COMPUTES


def find_compute(symbol: Symbol) -> Compute:
    """The compute of a symbol's operator, which must have one: see `has_compute`."""
    return _COMPUTES[symbol.op][0]


def kind_of(symbol: Symbol) -> Kind:
    return _COMPUTES[symbol.op][1] if symbol.op in _COMPUTES else Kind.OTHER


def pack_parameter(symbol: Symbol, index: int, value: Array) -> Array:
    """The array that the compute of `symbol` gets for a parameter that is its input `index`."""
    pack = _PACKINGS.get((symbol.op, index))
    packed = None if pack is None else pack(symbol, value)
    return value if packed is None else packed


def record(symbol: Symbol, kind: type[_Record]) -> _Record:
    """The symbol's operator, as the record that its compute is for."""
    if not isinstance(symbol.operator, kind):
        raise CompilationError(f"{symbol.name}: a compute for {kind.op} is registered for {symbol.op}")
    return symbol.operator


def stage(shape: tuple[int, ...], body: Callable[..., Expression], name: str, **hints: Any) -> Tensor:
    """A TE stage; hints are given by the names of `Hint`'s members in lower case."""
    return te.compute(shape, body, name=name, attrs={getattr(Hint, key.upper()): v for key, v in hints.items()})


def elementwise(symbol: Symbol, *inputs: Tensor, body: Callable[..., Expression]) -> Tensor:
    """The stage of an elementwise operator: `body` of the inputs' elements, each broadcast to the symbol's shape."""
    return stage(
        symbol.shape,
        lambda *at: body(*(broadcast(x, at) for x in inputs)),
        symbol.op.lower().strip("_"),
        inline=True,
    )


def broadcast(x: Tensor, at: tuple[Expression, ...]) -> Expression:
    """The element of `x` that NumPy's broadcasting puts at the index `at`."""
    places = at[len(at) - len(x.shape) :]
    return x(*(0 if int(n) == 1 else i for n, i in zip(x.shape, places, strict=True)))


def bind(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """`body(value)` with `value` computed once, so that chains of fused operators do not grow exponentially."""
    held = tirx.Var("held", dtype_of(value))
    return tirx.Let(held, value, body(held))


def dtype_of(value: Expression) -> str:
    """The dtype of a scalar expression."""
    return str(value.ty)


def constant(value: float | int | bool, dtype: str) -> Expression:
    return tirx.const(value, dtype)


def ravel(at: tuple[Expression, ...], shape: tuple[int, ...]) -> Expression:
    """The flat place of an index in an array of `shape`."""
    flat: Expression = constant(0, "int32")
    for i, n in zip(at, shape, strict=True):
        flat = flat * n + i
    return flat


def unravel(flat: Expression, shape: tuple[int, ...]) -> list[Expression]:
    """The index in an array of `shape` of a flat place."""
    at: list[Expression] = []
    for axis in reversed(range(len(shape))):
        at.insert(0, flat if axis == 0 else tirx.floormod(flat, shape[axis]))
        flat = tirx.floordiv(flat, shape[axis])
    return at
