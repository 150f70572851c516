"""The epilogue that stores bytes, four vectors of sums at a time: the int16s of two fill a vector, the bytes of four.

Schedules say what is done with one element; the loops around say which vectors of 16 channels there are, at which
positions, and the statements for four of them are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from tvm import ir, sym, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, statement_block, without_marks
from mrt.backend.kernels.x86.avx512.byte_expression import bytes_of, element_of
from mrt.backend.kernels.x86.avx512.multiply_high import LANES
from mrt.backend.kernels.x86.avx512.requantize_int16 import (
    OPERATOR,
    TURN,
    multiply_high_pair,
    requantize_pair,
)
from mrt.backend.memory.storage import VECTOR
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, dtype_of, shuffled, substitute
from mrt.backend.tir.statements import bound, taken_apart
from mrt.symbol.passes import Property

QUARTERS = range(0, 2 * LANES, 4 * TURN)
"""Of a vector of bytes of four others."""

Place = tuple[int, ...]
"""Of the loops around a vector of channels."""


def stores_packed(plan: Any, loop: Any) -> bool:
    """Whether `loop` only stores bytes of requantized int16s, so that `PackedStore` may write it."""
    innermost = plan.get(loop)
    realize = innermost.body
    expression = bytes_of(realize.block.body) if hasattr(realize, "block") else None
    return expression is not None and all(_is_vector(load, innermost, realize) for load in expression.loads)


def _is_vector(load: Any, loop: Any, realize: Any) -> bool:
    """Whether the turns of a loop read one element of memory, or such that follow each other."""
    own, variable = [each.var for each in realize.block.iter_vars], loop.loop_var
    first = substitute(load.indices, own, realize.iter_values)
    following = substitute(first, [variable], [variable + 1])
    steps = [sym.Analyzer().simplify(b - a) for a, b in zip(first, following, strict=True)]
    if not all(isinstance(step, tirx.IntImm) for step in steps):
        return False
    *outer, last = map(int, steps)
    return not any(outer) and last in (0, 1)


@dataclass(frozen=True)
class PackedStore(KernelPass):
    """Loops with `Hint.PACKED_STORE` are written out.

    The mark is how many of the loops within say which channels; those before say which positions, and the innermost
    one goes over a vector of channels.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.PACKED_STORE,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.PACKED_STORE),)

    def lower(self, function: Any) -> Any:
        return lower_loops(function, Hint.PACKED_STORE, _packed)


def _packed(loop: Any) -> Any:
    loops, inner = taken_apart(loop)
    return PackedTile(loops, inner, int(loop.annotations[Hint.PACKED_STORE])).block()


class PackedTile:
    """A block that stores one byte, within loops of positions, of channels, and over a vector of these."""

    def __init__(self, loops: Sequence[Any], realize: Any, channels: int) -> None:
        self._loops, self._realize = loops, realize
        self._positions = len(loops) - 1 - channels
        self._adjacent = channels > 0 and int(loops[-2].extent) % 2 == 0
        self._store = realize.block.body
        self._expression: Any = bytes_of(self._store)
        self._variables = [loop.loop_var for loop in loops]
        self._own = [variable.var for variable in realize.block.iter_vars]
        self._known: dict[Any, Any] = {}
        self._bound: list[Any] = []

    def block(self) -> Any:
        """The statements for all that the loops go over."""
        sums = self._expression.call.args[0]
        made = (each for _, stored in self.statements() for each in stored)
        return statement_block("packed_store", self.reads, self.stored, made, self._region(sums.source, sums.indices))

    @property
    def reads(self) -> list[Any]:
        """The buffers that are read, but that of the sums."""
        return [load.source for load in self._expression.loads]

    @property
    def stored(self) -> Any:
        """The region that is stored."""
        return self._region(self._store.buffer, self._store.indices)

    def statements(self) -> Iterator[tuple[list[Place], Iterator[Any]]]:
        """The places of some vectors, and the statements that store these."""
        pairs = list(self._pairs())
        for first in range(0, len(pairs), 2):
            chosen = pairs[first : first + 2]
            yield [place for pair in chosen for place in pair], iter(self._with_bindings(self._stored(chosen)))

    def _pairs(self) -> Iterator[tuple[Place, Place]]:
        """Two vectors each whose int16s fill one: of channels that follow each other, or else at two positions. The
        last one may be paired with itself."""
        counts = [range(int(loop.extent)) for loop in self._loops[:-1]]
        positions, channels = (list(product(*each)) for each in (counts[: self._positions], counts[self._positions :]))
        if self._adjacent:
            for first in range(0, len(channels), 2):
                for place in positions:
                    yield (*place, *channels[first]), (*place, *channels[first + 1])
            return
        for channel in channels:
            for first in range(0, len(positions), 2):
                yield (*positions[first], *channel), (*positions[min(first + 1, len(positions) - 1)], *channel)

    def _stored(self, pairs: Sequence[tuple[Place, Place]]) -> Iterator[Any]:
        """Stores the bytes of one or two pairs of vectors."""
        packed = [self._int16s(*pair) for pair in pairs]
        joined = self._bind("packed", self._expression.bytes([*packed, *packed[: 2 - len(packed)]]))
        for number, pair in enumerate(pairs):
            # Each quarter of a vector has a few bytes of all four.
            first, second = ([2 * TURN * number + TURN * i + quarter for quarter in QUARTERS] for i in range(2))
            if self._adjacent:
                yield self._bytes(joined, [*first, *second], pair[0])
                continue
            yield self._bytes(joined, first, pair[0])
            if pair[1] != pair[0]:
                yield self._bytes(joined, second, pair[1])

    def _bytes(self, joined: Expression, turns: Sequence[int], place: Place) -> Any:
        """Stores what begins at the turns of a vector of bytes."""
        value = shuffled([joined], [turn + i for turn in turns for i in range(TURN)])
        at = self._run(self._store.indices, place, TURN * len(turns))
        store = tirx.BufferStore(self._store.buffer, value, at)
        if not self._is_guarded:
            return store
        numbers = [constant(n, "int32") for n in (*place, 0)]
        (is_inside,) = substitute([self._realize.predicate], self._variables, numbers)
        return tirx.IfThenElse(is_inside, store, None)

    @property
    def _is_guarded(self) -> bool:
        """Whether only some places of the loops are within what is stored."""
        return not isinstance(self._realize.predicate, tirx.IntImm)

    def _int16s(self, first: Place, second: Place) -> Expression:
        """The requantized int16s of two vectors, interleaved."""
        return self._expression.int16s(
            lambda: self._requantized(first, second), lambda value: self._interleaved(value, first, second)
        )

    def _requantized(self, first: Place, second: Place) -> Expression:
        """What the call makes of two vectors of sums."""
        call = self._expression.call
        x, *constants = call.args
        half_and_left, factors = (constants[:2], constants[2:]) if call.op.name == OPERATOR else ([], constants)
        # What makes an int16 reads each sum twice.
        vectors = [self._bind("sums", self._sums(x, place)) for place in (first, second)]
        if len(factors) == 1:
            own = [[self._interleaved(factors[0], first, second)]] * 2
        else:
            own = [[self._factor(factor, place) for factor in factors] for place in (first, second)]
        if not half_and_left:
            return multiply_high_pair(vectors, own)
        half, left = (self._interleaved(each, first, second) for each in half_and_left)
        return requantize_pair(vectors, half, left, own, interleaved=True)

    def _interleaved(self, value: Expression, first: Place, second: Place) -> Expression:
        """What serves two vectors, as their int16s lie."""
        turns = [start + i for at in range(0, VECTOR, TURN) for start in (at, VECTOR + at) for i in range(TURN)]

        def interleaved() -> Expression:
            return shuffled([self._vector(value, place) for place in (first, second)], turns)

        return self._once(value, (first, second), interleaved)

    def _once(self, value: Expression, places: Sequence[Place], make: Callable[[], Expression]) -> Expression:
        """What `make` makes of an element at some places: once for all positions, unless it depends on these."""
        if self._moves(value):
            return make()
        key = "once", value, tuple(place[self._positions :] for place in places)
        if key not in self._known:
            self._known[key] = self._bind("constant", make())
        return self._known[key]

    def _moves(self, value: Expression) -> bool:
        """Whether an element is another one at another position."""
        if ("moves", value) not in self._known:
            indices = substitute(element_of(value).indices, self._own, self._realize.iter_values)
            used = [variable for index in indices for variable in tirx.analysis.undefined_vars(index)]
            positions = self._variables[: self._positions]
            self._known["moves", value] = any(each.same_as(at) for each in used for at in positions)
        return bool(self._known["moves", value])

    def _bind(self, name: str, value: Expression) -> Expression:
        """A variable that holds a value from the next statement on."""
        self._bound.append(bound(name, value))
        return self._bound[-1].var

    def _with_bindings(self, statements: Iterable[Any]) -> list[Any]:
        """The statements behind those that bind what they read."""
        made = list(statements)
        bindings, self._bound = self._bound, []
        return [*bindings, *made]

    def _sums(self, x: Expression, place: Place) -> Expression:
        """A vector of sums."""
        return self._vector(x, place)

    def _factor(self, value: Expression, place: Place) -> Expression:
        """What serves one vector of sums."""
        return self._once(value, (place,), lambda: self._vector(value, place))

    def _vector(self, value: Expression, place: Place) -> Expression:
        """The elements for a vector of channels."""
        if isinstance(value, tirx.Cast):
            return self._vector(value.value, place).astype(f"{dtype_of(value)}x{VECTOR}")
        if self._is_same_in_all_lanes(value, place[self._positions :]):
            return tirx.Broadcast(tirx.BufferLoad(value.source, self._index(value.indices, place, 0)), VECTOR)
        return tirx.BufferLoad(value.source, self._run(value.indices, place, VECTOR))

    def _is_same_in_all_lanes(self, value: Expression, channels: Place) -> bool:
        """Whether an element is one for a vector of channels, at whatever position."""
        if (value, channels) not in self._known:
            place = (*(0,) * self._positions, *channels)
            at, following = (self._index(value.indices, place, lane) for lane in (0, 1))
            self._known[value, channels] = all(_difference(*pair) == 0 for pair in zip(at, following, strict=True))
        return bool(self._known[value, channels])

    def _run(self, indices: Sequence[Expression], place: Place, count: int) -> list[Expression]:
        """The index of so many channels that follow each other."""
        *outer, first = self._index(indices, place, 0)
        return [*outer, tirx.Ramp(first, 1, count)]

    def _index(self, indices: Sequence[Expression], place: Place, lane: int) -> list[Expression]:
        """An index within the block at a place of the loops."""
        values = self._values(place, lane)
        return substitute(indices, self._own, values)

    def _values(self, place: Place, lane: int) -> list[Expression]:
        """The index of the block's axes at a place of the loops."""
        if (place, lane) not in self._known:
            numbers = [constant(n, "int32") for n in (*place, lane)]
            self._known[place, lane] = substitute(self._realize.iter_values, self._variables, numbers)
        return list(self._known[place, lane])

    def _region(self, buffer: Any, indices: Sequence[Expression]) -> Any:
        """What is read or written of a buffer in all."""
        *last, lane = (int(loop.extent) - 1 for loop in self._loops)
        first, end = self._index(indices, (0,) * len(last), 0), self._index(indices, tuple(last), lane)
        ranges = [ir.Range.from_min_extent(a, _difference(a, b) + 1) for a, b in zip(first, end, strict=True)]
        return tirx.BufferRegion(buffer, ranges)


def _difference(first: Expression, second: Expression) -> int:
    return int(sym.Analyzer().simplify(second - first))
