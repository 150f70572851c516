"""From a region to a PrimFunc: its computes on the tensors as they lie in memory, stored as its output shall lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from mrt.backend.border import fill_borders, move_into_memory
from mrt.backend.compute import Kind, find_compute, kind_of, reads_whole
from mrt.backend.expressions import Expression, Tensor, constant, dtype_of
from mrt.backend.kernels.dot import DotForm
from mrt.backend.kernels.rows import stored_rows
from mrt.backend.layouts import Layouts
from mrt.backend.machine import Machine, one_line
from mrt.backend.packing import Operand, Packed
from mrt.backend.regions import Region, walked_as_one
from mrt.backend.schedules import schedule
from mrt.backend.serial import without_threads
from mrt.backend.storage import Storage, View, Walk
from mrt.backend.tilings import Choose, Scheduler, schedule_by_rule
from mrt.errors import CompilationError
from mrt.symbol import Symbol


@dataclass(frozen=True, eq=False)
class Copy:
    """A tensor as it lies elsewhere for a reader that its own storage does not serve."""

    symbol: Symbol
    storage: Storage


@dataclass(frozen=True, eq=False)
class LoweredRegion:
    """A region with all that decides its code.

    tensors: what holds each input that is no parameter. packed: the parameters, by reader and place. storages: how the
    outputs shall lie. replaced: the input over which the last output is written (see `in_place`).
    """

    region: Region
    layouts: Layouts
    tensors: Mapping[Symbol, Symbol | Copy]
    packed: Mapping[tuple[Symbol, int], Packed]
    storages: tuple[Storage, ...]
    replaced: Symbol | None = None

    def key(self) -> Any:
        """Equal keys have equal functions."""
        place = self.region.places
        owners = list(dict.fromkeys(self.tensors.values()))
        read = tuple(
            (place[s], owners.index(held), *((held.storage,) if isinstance(held, Copy) else self._seen(s)))
            for s, held in self.tensors.items()
        )
        parameters = tuple((place[s], i, p.form, p.storages) for (s, i), p in self.packed.items())
        return (
            self.region.structure,
            read,
            parameters,
            self.storages,
            None if self.replaced is None else place[self.replaced],
        )

    def _seen(self, source: Symbol) -> tuple[object, ...]:
        return self.layouts.memory(source), self.layouts.way(source)

    def _view(self, source: Symbol, held: Symbol | Copy, tensor: Tensor) -> View:
        return self.layouts.view(source, tensor, held.storage if isinstance(held, Copy) else None)

    def function(self, machine: Machine, scheduler: Scheduler = schedule_by_rule) -> Any:
        """The scheduled PrimFunc, taking the tensors, the parameters and the results; CompilationError if TVM fails.

        The tensor that is replaced is the last result's.
        """
        output = self.region.output
        held: dict[Symbol | Copy, Tensor] = {}
        for i, owner in enumerate(dict.fromkeys(self.tensors.values())):
            storage = owner.storage if isinstance(owner, Copy) else self.layouts.storages[owner]
            held[owner] = te.placeholder(storage.shape, storage.dtype, f"input{i}")
        values: dict[Symbol, Tensor] = {s: self._view(s, owner, held[owner]) for s, owner in self.tensors.items()}
        parameters: list[Tensor] = []
        operands: dict[tuple[Symbol, int], Any] = {}
        for at, packed in self.packed.items():
            reader, index = at
            views = [] if packed.storages else [values[reader.inputs[index]]]
            for storage in packed.storages:
                parameters.append(te.placeholder(storage.shape, storage.dtype, f"parameter{len(parameters)}"))
                views.append(View.of(parameters[-1], storage))
            operands[at] = views[0] if packed.form is None else Operand(packed.form, views)
        guarded = not self._fills_padding()
        for symbol in self.region.symbols:
            inputs = [operands.get((symbol, i), values.get(source)) for i, source in enumerate(symbol.inputs)]
            values[symbol] = find_compute(symbol)(symbol, *inputs)
            if symbol in (self.region.stored or ()):
                values[symbol] = stored_rows(values[symbol], self.storages[0].length, guarded)
        try:
            found = [values[each] for each in self.region.outputs]
            walked = walked_as_one(self.region) if self._all_plain() else 1
            return finish(
                [*held.values(), *parameters],
                found,
                self.storages,
                guarded,
                walked,
                machine,
                self.region.stored is None
                and self._reads_runs()
                and all(packed.form.flat for packed in self.packed.values() if isinstance(packed.form, DotForm)),
                scheduler,
                self.region.stored is not None,
                None if self.replaced is None else list(held).index(self.replaced),
                max((view.turns for view in values.values() if isinstance(view, View)), default=1),
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise CompilationError(f"{output.name} ({output.op}): TVM fails: {one_line(error)}") from error

    def _all_plain(self) -> bool:
        views = [self._view(s, owner, None) for s, owner in self.tensors.items()]
        return all(view.storage is not None and view.storage.is_plain for view in views)

    def _reads_runs(self) -> bool:
        """Whether nothing is read that is cut out of other positions, which then are told apart."""
        views = [self._view(s, owner, None) for s, owner in self.tensors.items()]
        return all(v.storage is None or v.storage.is_one_run or not v.storage.is_flat for v in views)

    def _fills_padding(self) -> bool:
        """Whether the padding of the innermost axis may be computed like any element.

        It may where everything that is read is as long in memory, or the same for all; dots have lanes of their own.
        """
        storage = self.storages[0]
        inner = storage.inner
        if inner is None or storage.length == storage.type.shape[inner]:
            return True
        dotted: set[Symbol] = set()
        for symbol in self.region.symbols:
            match kind_of(symbol):
                case Kind.ELEMENTWISE:
                    continue
                case Kind.REDUCTION | Kind.STEPS if self.region.stored is not None:
                    continue
                case Kind.NORMALIZATION if self.region.stored is not None:
                    dotted |= set(symbol.inputs)
                case Kind.WINDOW | Kind.ROWS if len(symbol.inputs) == 1 or self._form(symbol, 1) is not None:
                    dotted |= set(symbol.inputs[:2]) if isinstance(self._form(symbol, 1), DotForm) else set()
                case _:
                    return False
        read = [self._view(s, owner, None) for s, owner in self.tensors.items() if s not in dotted]
        laid = [
            packed.storages
            for (s, i), packed in self.packed.items()
            if kind_of(s) is Kind.ELEMENTWISE and not reads_whole(s, i)
        ]
        read += [View.of(None, storage) for storages in laid for storage in storages]
        return all(_spans(view, inner - storage.type.rank, storage.length) for view in read)

    def _form(self, reader: Symbol, index: int) -> Any:
        packed = self.packed.get((reader, index))
        return None if packed is None else packed.form


def _spans(view: View, axis: int, length: int) -> bool:
    """Whether memory holds `length` elements along an axis that counts from the last, or one for all."""
    rank = len(view.shape)
    if rank + axis < 0 or view.shape[axis] == 1:
        return True
    return view.inner is not None and view.inner - rank == axis and view.length >= length


def finish(
    inputs: Sequence[Tensor],
    values: Sequence[Tensor],
    storages: Sequence[Storage],
    guarded: bool,
    walked: int,
    machine: Machine,
    may_be_flat: bool = True,
    scheduler: Scheduler = schedule_by_rule,
    by_rows: bool = False,
    replaced: int | None = None,
    turns: int = 1,
) -> Any:
    """The scheduled PrimFunc that stores `values`, which are walked together.

    guarded: the padding is 0 and not computed. walked: see `schedule`. may_be_flat: whether positions may be walked as
    one axis; what then reads several would have to divide, and TVM not see what is read together. scheduler: see
    `tilings`. replaced: the place of the input over which the last value is written. turns: see `Walk`.
    """
    walk = Walk.over(storages, may_be_flat, turns)

    def element(*places: Expression) -> tuple[Expression, ...]:
        at = walk.logical(places)
        return tuple(_held(value, at, storage, guarded) for value, storage in zip(values, storages, strict=True))

    made = te.compute(walk.shape, element if len(values) > 1 else lambda *at: element(*at)[0], name="result")
    results = list(made) if len(values) > 1 else [made]
    function = move_into_memory(te.create_prim_func([*inputs, *results]), walk, storages)

    def scheduled(choose: Choose) -> Any:
        made = schedule(function, walk, len(values), walked, machine, choose, by_rows)
        made = fill_borders(made, storages).without_attr("global_symbol")
        if replaced is not None:
            # One parameter for both, since parameters do not overlap; a schedule would take the two for dependent.
            made = made.specialize({made.params[replaced]: made.params[-1]})
        return without_threads(made) if machine.is_serial else made

    return scheduler(function, scheduled)


def _held(value: Tensor, at: Sequence[Expression], storage: Storage, guarded: bool) -> Expression:
    """What memory holds at a logical index."""
    inner, dtype = storage.inner, storage.type.dtype
    found = value(*at)
    if dtype_of(found) != dtype:
        found = found.astype(dtype)
    if inner is not None and storage.length > storage.type.shape[inner]:
        within, nothing = at[inner] < storage.type.shape[inner], constant(0, dtype)
        if guarded:
            found = tirx.if_then_else(within, found, nothing)
        elif dtype.startswith("float"):
            # Of padding, a logarithm say is infinite, and a NaN when it is multiplied by a weight of 0.
            found = tirx.Select(within, found, nothing)
    return storage.encode(found)
