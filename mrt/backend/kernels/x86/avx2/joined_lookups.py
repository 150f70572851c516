"""Look-ups for the vectors of a tile, joined: the sums of several are clipped to the places of one full vector.

What picks of a table in registers takes as many instructions for 8 or 16 places as for 32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, ClassVar

import tvm
from tvm import ir, s_tir, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, without_marks
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import (
    SEAL,
    Expression,
    bind,
    constant,
    dtype_of,
    llvm_call,
    operands,
    replaced,
    shuffled,
)
from mrt.backend.tir.statements import (
    loop_around,
    plain_block,
    sequence,
    taken_apart,
    vectorized,
    whole_region,
    with_root,
    with_values,
)
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.passes import Property

JOINED = "mrt.joined"
"""The attribute of operators that look up places of 8 bits: whether 32 at once are no slower than fewer."""
LANES, SUMS = 32, 8
"""Of a vector of places, and of one of int32."""
PACK_INT16 = "llvm.x86.avx2.packssdw"
PACK = {"int8": "llvm.x86.avx2.packsswb", "uint8": "llvm.x86.avx2.packuswb"}
"""What clips and packs two vectors of int32, and what does two of int16, within each half of these."""
UNMIXED = [4 * unit + i for vector in range(4) for unit in (vector, 4 + vector) for i in range(4)]
"""Where what four vectors were packed to has the first to the last number of the first vector, and so on."""


def joins_look_ups(plan: Any, loop: Any) -> bool:
    """Whether blocks within `loop` look up what can be joined, and all only store."""
    stores = [plan.get(block).body for block in plan.get_child_blocks(loop)]
    only_store = all(isinstance(store, tirx.BufferStore) for store in stores)
    return only_store and any(True for store in stores for _ in _look_ups(store.value))


def _look_ups(value: Expression) -> Iterator[Any]:
    """The calls of operators with JOINED, but for those that the places of others are made of."""
    if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.get_attr(JOINED):
        yield value
        return
    for each in operands(value):
        yield from _look_ups(each)


@dataclass(frozen=True)
class JoinLookUps(KernelPass):
    """Marked loops, which go over the vectors of a tile, are written out: what several vectors are clipped from is
    kept, entries are looked up for all of it at once, and what is made of the entries is stored, vector by vector.

    What is kept is so little that LLVM has it in registers. Loops that follow each other, as those of tiles that are
    jammed, are joined, too.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.JOINED_LOOK_UPS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.JOINED_LOOK_UPS),)

    def lower(self, function: Any) -> Any:
        made = with_root(function, _lowered(function.body.block.body))
        # Each vector has the loops and the values of the others.
        return s_tir.transform.ConvertSSA()(tvm.IRModule({"main": made}))["main"]


def _lowered(statement: Any) -> Any:
    """The statement with what is joined in place of marked loops."""
    if isinstance(statement, tirx.SeqStmt):
        return sequence(
            made
            for is_marked, found in groupby(statement.seq, _is_marked)
            for made in ([_joined(list(found))] if is_marked else map(_lowered, found))
        )
    if not isinstance(statement, tirx.For):
        return statement
    return _joined([statement]) if _is_marked(statement) else loop_around(statement, _lowered(statement.body))


def _is_marked(statement: Any) -> bool:
    return isinstance(statement, tirx.For) and Hint.JOINED_LOOK_UPS in statement.annotations


def _joined(loops: Sequence[Any]) -> Any:
    """What is done for all vectors of loops, each of which is one over others, and all of which look up alike."""
    tiles = [_stores(loops[0], None)]
    tiles += [_stores(loop, tiles[0]) for loop in loops[1:]]
    vectors = [(stores, turns) for stores in tiles for turns in stores[0].turns]
    at_once, made = max(LANES // tiles[0][0].lanes, 1), list[Any]()
    for begin in range(0, len(vectors), at_once):
        group = vectors[begin : begin + at_once]
        for number in range(len(tiles[0])):
            made += _together([(stores[number], turns) for stores, turns in group])
    return plain_block("joined", sequence(made), [buffer for store in tiles[0] for buffer in store.kept])


def _stores(loop: Any, like: Sequence[_Store] | None) -> list[_Store]:
    """Of the blocks within a loop, and loops in this. like: those whose memory they share."""
    loops, inner = taken_apart(loop)
    blocks = inner.seq if isinstance(inner, tirx.SeqStmt) else [inner]
    return [_Store(loops, block, like[number] if like else None) for number, block in enumerate(blocks)]


def _together(vectors: Sequence[tuple[_Store, Sequence[int]]]) -> Iterator[Any]:
    """The statements for vectors that make a full one at most, each of the turns of the loops around a block."""
    store, lanes = vectors[0][0], sum(each.lanes for each, _ in vectors)
    for number, look_up in enumerate(store.look_ups):
        yield from (each.numbers(number, turns, place) for place, (each, turns) in enumerate(vectors))
        yield look_up.block(lanes, store.reads)
    yield from (each.results(turns, place) for place, (each, turns) in enumerate(vectors))


class _Store:
    """A block that stores results, and the loops around it: over the vectors of a tile, and over one of them.

    lanes: of a vector. turns: of the loops over vectors. kept: memory between the steps, an element for each place of a
    full vector.
    """

    def __init__(self, loops: Sequence[Any], realize: Any, like: _Store | None) -> None:
        *self._outer, self._lane = loops
        self._realize, self._first = realize, tirx.Var("first", "int32")
        self.lanes = int(self._lane.extent)
        self.turns = list(product(*(range(int(loop.extent)) for loop in self._outer)))
        self.look_ups: list[_LookUp] = []
        self._at, self._value = [self._first + self._lane.loop_var], realize.block.body.value
        while (call := next(_look_ups(self._value), None)) is not None:
            shared = like.look_ups[len(self.look_ups)] if like else None
            self.look_ups.append(_LookUp.of(self._value, call, shared))
            self._value = replaced(self._value, call, tirx.BufferLoad(self.look_ups[-1].entries, self._at))

    @property
    def kept(self) -> list[Any]:
        return [buffer for each in self.look_ups for buffer in (each.numbers, each.entries)]

    @property
    def reads(self) -> list[Any]:
        """The regions that the block reads."""
        return list(self._realize.block.reads)

    def numbers(self, look_up: int, turns: Sequence[int], place: int) -> Any:
        """Keeps what the places of a vector are made of, as one of those that are looked up together."""
        found = self.look_ups[look_up]
        return self._vector([whole_region(found.numbers)], found.numbers, self._at, found.number, turns, place)

    def results(self, turns: Sequence[int], place: int) -> Any:
        """Stores what is made of the entries."""
        block = self._realize.block
        return self._vector(block.writes, block.body.buffer, block.body.indices, self._value, turns, place)

    def _vector(
        self,
        writes: Sequence[Any],
        buffer: Any,
        indices: Sequence[Expression],
        value: Expression,
        turns: Sequence[int],
        place: int,
    ) -> Any:
        """The loop over a vector, at some turns of those around it, that stores a value in a buffer."""
        block, store = self._realize.block, tirx.BufferStore(buffer, value, indices)
        reads = [*block.reads, *(whole_region(each) for each in self.kept if not each.same_as(buffer))]
        made = s_tir.SBlock(block.iter_vars, reads, writes, "vector", store)
        realize = s_tir.SBlockRealize(self._realize.iter_values, self._realize.predicate, made)
        values = [constant(number, "int32") for number in (*turns, place * self.lanes)]
        variables = [*(loop.loop_var for loop in self._outer), self._first]
        return with_values(loop_around(self._lane, realize, marks={}), dict(zip(variables, values, strict=True)))


@dataclass(frozen=True, eq=False)
class _LookUp:
    """A call that looks up, at places within `value` that are made of `number`.

    clip: the dtype of places that are a clipped int32, and the limits; else None. numbers, entries: memory [LANES].
    """

    call: Any
    places: Expression
    number: Expression
    clip: tuple[str, int, int] | None
    numbers: Any
    entries: Any

    @classmethod
    def of(cls, value: Expression, call: Any, shared: _LookUp | None) -> _LookUp:
        """Of a call within `value`. shared: that whose memory it has."""
        places = _places(value, call)
        number, clip = _unclipped(places)
        if shared is not None:
            return cls(call, places, number, clip, shared.numbers, shared.entries)
        numbers, entries = (tirx.decl_buffer((LANES,), dtype_of(each), "kept") for each in (number, call))
        return cls(call, places, number, clip, numbers, entries)

    def block(self, lanes: int, reads: Sequence[Any]) -> Any:
        """Looks up the entries of so many lanes. reads: what else may be read."""
        made = self._packed(*self.clip) if self.clip is not None and lanes == LANES else self._of_lanes(lanes)
        read, written = [*reads, whole_region(self.numbers)], [whole_region(self.entries)]
        return plain_block("look_up", made, (), read, written)

    def _of_lanes(self, lanes: int) -> Any:
        lane = tirx.Var("lane", "int32")
        places = replaced(self.places, self.number, tirx.BufferLoad(self.numbers, [lane]))
        return vectorized(lane, lanes, tirx.BufferStore(self.entries, self._found(places, self.call.ty), [lane]))

    def _packed(self, dtype: str, lo: int, hi: int) -> Any:
        """The same of numbers that instructions pack, which mixes them; the entries are put in order again."""
        sums = [tirx.BufferLoad(self.numbers, [tirx.Ramp(first, 1, SUMS)]) for first in range(0, LANES, SUMS)]
        int16s = [llvm_call(f"int16x{LANES // 2}", PACK_INT16, *sums[first : first + 2]) for first in (0, 2)]
        places = llvm_call(f"{dtype}x{LANES}", PACK[dtype], *int16s)
        least, most = DTYPE_RANGES[dtype]
        places = places if lo == least else tirx.Max(places, tirx.Broadcast(constant(lo, dtype), LANES))
        places = places if hi == most else tirx.Min(places, tirx.Broadcast(constant(hi, dtype), LANES))
        found = self._found(tirx.reinterpret(f"uint8x{LANES}", places), f"{dtype_of(self.call)}x{LANES}")
        in_order = bind(found, lambda mixed: shuffled([mixed], UNMIXED))
        return tirx.BufferStore(self.entries, in_order, [tirx.Ramp(0, 1, LANES)])

    def _found(self, places: Expression, dtype: Any) -> Expression:
        return ir.Call(self.call.op, [self.call.args[0], places], ret_ty=dtype)


def _places(value: Expression, call: Any) -> Expression:
    """At which places a call within `value` looks up, with the values that are bound around it."""
    if value.same_as(call):
        return call.args[1]
    inner = next(each for each in operands(value) if any(found.same_as(call) for found in _look_ups(each)))
    made = _places(inner, call)
    return tirx.Let(value.var, value.value, made) if isinstance(value, tirx.Let) and inner.same_as(value.body) else made


def _unclipped(places: Expression) -> tuple[Expression, tuple[str, int, int] | None]:
    """Of places that are a clipped int32 this, and the dtype that holds it then, and the limits; else the places."""
    value = places
    while True:
        if isinstance(value, tirx.Let) and value.body.same_as(value.var):
            value = value.value
        elif isinstance(value, ir.Call) and value.op.name == SEAL and dtype_of(value) in PACK:
            value = value.args[0]
        else:
            break
    clip = value.value if isinstance(value, tirx.Cast) and dtype_of(value) in PACK else None
    if not isinstance(clip, tirx.Min) or not isinstance(clip.a, tirx.Max) or dtype_of(clip) != "int32":
        return places, None
    lo, hi = clip.a.b, clip.b
    if not isinstance(lo, tirx.IntImm) or not isinstance(hi, tirx.IntImm):
        return places, None
    return clip.a.a, (dtype_of(value), int(lo), int(hi))
